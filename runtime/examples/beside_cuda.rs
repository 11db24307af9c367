//! Runs a model beside a program's other CUDA work: in the program's context, on its stream, on tensors in GPU memory
//!
//!     cargo run --release -p sardonyx-runtime --example beside_cuda -- MODEL.sdx
//!
//! A kernel of the program computes the model's input on the GPU, and the model reads it there, without copies through
//! the host in between. The model must have one input; the input and the first output must be f32.

use cudarc::driver::sys::{self, CUresult};
use sardonyx_runtime::{
    DType, DeviceName, DeviceTensor, Error, LoadOptions, Model, Result, RunOptions, SessionOptions, Trust,
};
use std::ffi::c_void;
use std::ptr::null_mut;

/// y[i] = 2 x[i] + 1 for i < n, with one thread per element.
static PTX: &str = "
.version 8.0
.target sm_80
.address_size 64
.visible .entry affine(.param .u64 x, .param .u64 y, .param .s64 n, .param .u64 unused)
{
  .reg .pred %p<1>;
  .reg .b32 %r<4>;
  .reg .f32 %f<2>;
  .reg .b64 %d<7>;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mad.lo.u32 %r3, %r0, %r1, %r2;
  cvt.u64.u32 %d0, %r3;
  ld.param.s64 %d1, [n];
  setp.ge.s64 %p0, %d0, %d1;
  @%p0 bra DONE;
  ld.param.u64 %d2, [x];
  ld.param.u64 %d3, [y];
  shl.b64 %d4, %d0, 2;
  add.s64 %d5, %d2, %d4;
  add.s64 %d6, %d3, %d4;
  ld.global.f32 %f0, [%d5];
  fma.rn.f32 %f1, %f0, 0f40000000, 0f3F800000;
  st.global.f32 [%d6], %f1;
DONE:
  ret;
}
\0";

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_default();
    for turn in 0..3 {
        let (dims, values) = run(&path, 4, 0.25 * turn as f32)?;
        println!("{dims:?} {:?}", &values[..values.len().min(8)]);
    }
    Ok(())
}

/// Runs the model with `n` as the value of every symbol and 2x + 1 as every element of its input. Returns the
/// dimensions and the elements of the first output.
pub fn run(path: &str, n: i64, x: f32) -> Result<(Vec<usize>, Vec<f32>)> {
    let (mut gpu, mut context, mut stream) = (0, null_mut(), null_mut());
    let (mut module, mut kernel) = (null_mut(), null_mut());
    // SAFETY: the driver writes its results to the given locations; the PTX ends with a zero.
    unsafe {
        ok(sys::cuInit(0))?;
        ok(sys::cuDeviceGet(&mut gpu, 0))?;
        ok(sys::cuCtxCreate_v2(&mut context, 0, gpu))?;
        ok(sys::cuStreamCreate(&mut stream, sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32))?;
        ok(sys::cuModuleLoadDataEx(&mut module, PTX.as_ptr().cast(), 0, null_mut(), null_mut()))?;
        ok(sys::cuModuleGetFunction(&mut kernel, module, c"affine".as_ptr()))?;
    }

    // SAFETY: the user who starts this program trusts the file; the context outlives the model.
    let options = unsafe { LoadOptions::new(Trust::file()).cuda_context(context.cast()) };
    let model = Model::load(path, &options.device(DeviceName::Cuda(0)))?;
    // SAFETY: the stream outlives the session.
    let session = model.session(&unsafe { SessionOptions::default().cuda_stream(stream.cast()) })?;
    let main = model.entry_points().remove(0);
    let size = |dims: &[sardonyx_runtime::Dim]| -> Result<Vec<usize>> {
        dims.iter().map(|d| Ok(d.eval_named(&|_| Some(n))? as usize)).collect()
    };
    let (input, output) = (&main.inputs[0], &main.outputs[0]);
    let (in_dims, out_dims) = (size(&input.dims)?, size(&output.dims)?);
    let [n_in, n_out] = [&in_dims, &out_dims].map(|dims| dims.iter().product::<usize>());
    let (host, mut result) = (vec![x; n_in], vec![0f32; n_out]);
    let [raw, ready, out] = [n_in, n_in, n_out].map(|n| {
        let mut address = 0;
        // SAFETY: the driver writes the address to the given location.
        ok(unsafe { sys::cuMemAlloc_v2(&mut address, (4 * n).max(1)) }).map(|()| address)
    });
    let (mut raw, mut ready, out) = (raw?, ready?, out?);

    // The program enqueues its own work and does not wait for it.
    let (mut count, mut unused, blocks) = (n_in as i64, 0u64, n_in.div_ceil(128).max(1) as u32);
    let mut arguments: [*mut c_void; 4] =
        [(&raw mut raw).cast(), (&raw mut ready).cast(), (&raw mut count).cast(), (&raw mut unused).cast()];
    // SAFETY: `host`, `raw` and `ready` hold `n_in` elements each; the kernel takes these four arguments.
    unsafe {
        ok(sys::cuMemcpyHtoDAsync_v2(raw, host.as_ptr().cast(), 4 * n_in, stream))?;
        let (arguments, none) = (arguments.as_mut_ptr(), null_mut());
        ok(sys::cuLaunchKernel(kernel, blocks, 1, 1, 128, 1, 1, 0, stream, arguments, none))?;
    }
    // SAFETY: the memory has these sizes, and only the model uses it during the call; the kernel that writes `ready` is
    // on the session's stream.
    let (given, out_tensor) =
        unsafe { (DeviceTensor::new(DType::F32, &in_dims, ready)?, DeviceTensor::space(DType::F32, out, 4 * n_out)?) };
    let mut outputs = [(output.name.as_str(), out_tensor)];
    let inputs = [(input.name.as_str(), (&given).into())];
    let options = RunOptions::default().outputs([output.name.as_str()]);
    session.run_on_device("main", &inputs, &mut outputs, None, &options)?;
    let dims = outputs[0].1.dims().to_vec();
    drop(session);
    drop(model);

    // SAFETY: everything was created once and is released once; `result` and `out` hold `n_out` elements.
    unsafe {
        ok(sys::cuMemcpyDtoHAsync_v2(result.as_mut_ptr().cast(), out, 4 * n_out, stream))?;
        ok(sys::cuStreamSynchronize(stream))?;
        for address in [raw, ready, out] {
            ok(sys::cuMemFree_v2(address))?;
        }
        ok(sys::cuModuleUnload(module))?;
        ok(sys::cuStreamDestroy_v2(stream))?;
        ok(sys::cuCtxDestroy_v2(context))?;
    }
    Ok((dims, result))
}

fn ok(result: CUresult) -> Result<()> {
    match result {
        CUresult::CUDA_SUCCESS => Ok(()),
        result => Err(Error::user("E0405", format!("the CUDA driver refuses: {result:?}"))),
    }
}
