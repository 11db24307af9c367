//! mojolearn-nvidia-ptx 0.8.62, kernels that LLVM generated for sm_80 from Mojo: products, norms, sorting, counting

use super::numbers::{Random, close, product};
use super::vm::{Arg, Kernel, SEEDS, Vm, explained};
use ptxvm::Module;
use sardonyx_tests::prepared::fetched;

/// Returns the kernel of this name. The package's libraries contain modules as text, with one kernel in each module.
fn kernel(library: &str, name: &str, grid: [u32; 2], block: u32) -> Kernel {
    let bytes = std::fs::read(fetched("mojolearn-nvidia-ptx-0.8.62", library)).expect("the file is there");
    let text = module_with(&bytes, name).unwrap_or_else(|| panic!("{library} has no {name}"));
    let module = Module::parse(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
    Kernel { module, entry: name.into(), grid: [grid[0], grid[1], 1], block: [block, 1, 1], shared_bytes: 0 }
}

/// Returns the text of the module with this entry: from `.version` to the terminating zero byte.
fn module_with(library: &[u8], name: &str) -> Option<String> {
    let declaration = format!(".visible .entry {name}(");
    let at = find(library, declaration.as_bytes())?;
    let start = library[..at].windows(9).rposition(|w| w == b".version ")?;
    let end = at + library[at..].iter().position(|b| *b == 0)?;
    String::from_utf8(library[start..end].to_vec()).ok()
}

/// Returns the position of `word`. Libraries have tens of megabytes, so the first byte of `word` is searched before its
/// other bytes are compared.
fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += text[at..].iter().position(|b| *b == word[0])?;
        match text[at..].starts_with(word) {
            true => return Some(at),
            false => at += 1,
        }
    }
}

/// `gemm_nt(c, a, b, m, n, k)`: one thread per element of a[m,k] · b[n,k]ᵀ, which executes one fma after the other.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn product_of_f32_by_threads() {
    let (m, n, k) = (13, 17, 65);
    let kernel = kernel("native.so", "core_gemm_pinned_gemm_nt_kerne6A6A6A6A_84e6d10584cba66b", [2, 1], 128);
    let mut random = Random::new(11);
    let (a, b) = (random.floats(m * k, 1.0), random.floats(n * k, 1.0));
    let (wanted, size) = product(&a, &b, k);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let c = vm.room("c", m * n * 4);
        let addresses = [c, vm.floats("a", &a), vm.floats("b", &b)].map(Arg::Address);
        let args: Vec<Arg> = addresses.into_iter().chain([m, n, k].map(|v| Arg::I32(v as i32))).collect();
        let report = vm.launch(&kernel, &args, seed);
        explained("gemm_nt", &report, &[]);
        let bound = |i: usize| k as f64 * f64::from(f32::EPSILON) * size[i];
        close("gemm_nt", &vm.read_floats(c, m * n), &wanted, bound);
    }
}

/// `row_norm(out, x, n, root)`: one CTA per row, with a tree reduction in shared memory.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn norms_of_rows() {
    let (rows, n) = (5, 300);
    let kernel = kernel("native.so", "core_row_norms_row_norm_kernel6A6A6A6A_1b52a3dc0e3ed302", [rows, 1], 128);
    let x = Random::new(12).floats(rows as usize * n, 3.0);
    let squares = |row: &[f32]| row.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>();
    for (root, seed) in [(0, 0), (1, 1), (1, 20)] {
        let wanted: Vec<f64> = x.chunks(n).map(squares).map(|s| if root == 1 { s.sqrt() } else { s }).collect();
        let mut vm = Vm::new();
        let out = vm.room("out", rows as usize * 4);
        let x = vm.floats("x", &x);
        let args = [Arg::Address(out), Arg::Address(x), Arg::I32(n as i32), Arg::I32(root)];
        let report = vm.launch(&kernel, &args, seed);
        explained("row_norm", &report, &[]);
        // Squares are positive; the sum rounds three times in a thread and at seven levels of the tree.
        close("row_norm", &vm.read_floats(out, wanted.len()), &wanted, |i| wanted[i] * 10.0 * f64::from(f32::EPSILON));
    }
}

/// `row_bitonic(values, tags, first, last, n)`: a CTA of n/2 threads sorts a row together with its tags, ascending in
/// even rows and descending in odd ones, for a merge that follows.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn bitonic_sort_of_rows() {
    let (rows, n) = (2, 512);
    let kernel = kernel("sequence.so", "autograd_row_sort_row_bitonic_6A6A6A6A_b0045ab9894d0da6", [rows, 1], 256);
    let mut random = Random::new(13);
    let values = random.floats(rows as usize * n, 100.0);
    let tags: Vec<f32> = values.iter().map(|v| f32::from(*v > 0.0)).collect();
    let mut wanted = values.clone();
    wanted[..n].sort_by(f32::total_cmp);
    wanted[n..].sort_by(|a, b| b.total_cmp(a));
    for seed in SEEDS {
        let mut vm = Vm::new();
        let (v, t) = (vm.floats("values", &values), vm.floats("tags", &tags));
        let args = [Arg::Address(v), Arg::Address(t), Arg::I32(2), Arg::I32(n as i32), Arg::I32(n as i32)];
        let report = vm.launch(&kernel, &args, seed);
        explained("row_bitonic", &report, &[]);
        assert_eq!(vm.read_floats(v, values.len()), wanted);
        let carried: Vec<f32> = wanted.iter().map(|v| f32::from(*v > 0.0)).collect();
        assert_eq!(vm.read_floats(t, values.len()), carried);
    }
}

/// `bincount(x, n, bins, counts, wrong)`: atomic additions; a value outside of the bins sets the flag `wrong` instead.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn counting_by_atomics() {
    let (n, bins) = (1000_usize, 10);
    let kernel = kernel("native.so", "core_hotpath_device__bincount_6A6A6A6A_e888210fba146a77", [4, 1], 256);
    let mut random = Random::new(14);
    let mut x: Vec<u64> = (0..n).map(|_| random.bits() % bins).collect();
    // One value outside of the bins.
    x[333] = bins;
    let mut wanted = vec![0; bins as usize];
    x.iter().filter(|v| **v < bins).for_each(|v| wanted[*v as usize] += 1);
    for seed in SEEDS {
        let mut vm = Vm::new();
        let (x, counts) = (vm.longs("x", &x), vm.ints("counts", &vec![0; bins as usize]));
        let wrong = vm.ints("wrong", &[0]);
        let args =
            [Arg::Address(x), Arg::I32(n as i32), Arg::I32(bins as i32), Arg::Address(counts), Arg::Address(wrong)];
        let report = vm.launch(&kernel, &args, seed);
        explained("bincount", &report, &[]);
        assert_eq!(vm.read(counts, bins as usize, i32::from_le_bytes), wanted);
        assert_eq!(vm.read(wrong, 1, i32::from_le_bytes), [1]);
    }
}

/// `gemm_int8_mma(_, c, rows, columns, a_high, a_low, b_high, b_low, m, n, k, aligned)`: each factor has 15 bits in two
/// bytes. cp.async loads the operands; three accumulators of tensor cores are combined in 64 bits and scaled by powers
/// of two.
#[test]
#[ignore = "fetches packages: cargo xtask test --suite published"]
fn product_of_15_bit_integers_by_cp_async_and_mma() {
    let (m, n, k) = (45, 70, 208);
    let name = "gemm_checks_gemm_int8_mma_tune6A6A6A6A_d063c347f2ba375b";
    let kernel = kernel("sequence.so", name, [3, 2], 128);
    let mut random = Random::new(15);
    let a = [random.bytes(m * k, -64, 63), random.bytes(m * k, -64, 63)];
    let b = [random.bytes(n * k, -64, 63), random.bytes(n * k, -64, 63)];
    let exponents =
        |random: &mut Random, n: usize| -> Vec<i32> { (0..n).map(|_| -((random.bits() % 20) as i32)).collect() };
    let (rows, columns) = (exponents(&mut random, m), exponents(&mut random, n));
    let whole = |x: &[Vec<i8>; 2], i: usize| i64::from(x[0][i]) * 128 + i64::from(x[1][i]);
    let mut wanted = vec![];
    for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
        let sum: i64 = (0..k).map(|c| whole(&a, i * k + c) * whole(&b, j * k + c)).sum();
        wanted.push(sum as f64 * f64::from(rows[i] + columns[j]).exp2());
    }
    for (aligned, seed) in [(1, 0), (1, 1), (0, 20)] {
        let mut vm = Vm::new();
        let unused = vm.room("unused", 4);
        let c = vm.room("c", m * n * 4);
        let scales = [vm.ints("rows", &rows), vm.ints("columns", &columns)];
        let parts = [&a[0], &a[1], &b[0], &b[1]].map(|part| part.iter().map(|v| *v as u8).collect::<Vec<_>>());
        let parts = ["a_high", "a_low", "b_high", "b_low"].iter().zip(&parts).map(|(name, part)| vm.bytes(name, part));
        let addresses: Vec<u64> = [unused, c].into_iter().chain(scales).chain(parts.collect::<Vec<_>>()).collect();
        let sizes = [m as i32, n as i32, k as i32, aligned].map(Arg::I32);
        let args: Vec<Arg> = addresses.into_iter().map(Arg::Address).chain(sizes).collect();
        let report = vm.launch(&kernel, &args, seed);
        explained("gemm_int8_mma", &report, &[]);
        // The sum is exact; it is rounded to f32 once, and scaling by a power of two is exact again.
        close("gemm_int8_mma", &vm.read_floats(c, m * n), &wanted, |i| wanted[i].abs() * f64::from(f32::EPSILON) / 2.0);
    }
}
