//! the bytes of an image file  =>  u8 [height, width, channels]

#[cfg(feature = "image")]
use crate::{DType, Error, host::unfit};
use crate::{Result, Tensor};
#[cfg(feature = "image")]
use image::{ImageReader, Limits};
#[cfg(feature = "image")]
use std::io::Cursor;

/// What a pixel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pixels {
    Rgb,
    Bgr,
    Grayscale,
}

impl Pixels {
    pub const ALL: [Pixels; 3] = [Pixels::Rgb, Pixels::Bgr, Pixels::Grayscale];
}

#[cfg(not(feature = "image"))]
pub fn decode(_file: &Tensor, _pixels: Pixels) -> Result<Tensor> {
    Err(super::left_out("ImageDecoder", "image"))
}

/// Memory that a decoder may take: an image that a model can use is far below.
#[cfg(feature = "image")]
const BYTES_MAX: u64 = 1 << 30;

#[cfg(feature = "image")]
pub fn decode(file: &Tensor, pixels: Pixels) -> Result<Tensor> {
    if (file.dtype(), file.rank()) != (DType::U8, 1) {
        return Err(unfit(format!("an image file is a vector of u8, not {} {:?}", file.dtype(), file.dims())));
    }
    let wrong = |e: &dyn std::fmt::Display| Error::user("E0303", format!("the image cannot be decoded: {e}"));
    let mut reader = ImageReader::new(Cursor::new(&file.bytes()[..])).with_guessed_format().map_err(|e| wrong(&e))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(BYTES_MAX);
    reader.limits(limits);
    let image = reader.decode().map_err(|e| wrong(&e))?;
    let (height, width) = (image.height() as usize, image.width() as usize);
    let (channels, data) = match pixels {
        Pixels::Rgb => (3, image.into_rgb8().into_raw()),
        Pixels::Grayscale => (1, image.into_luma8().into_raw()),
        Pixels::Bgr => {
            let mut data = image.into_rgb8().into_raw();
            data.chunks_exact_mut(3).for_each(|p| p.swap(0, 2));
            (3, data)
        }
    };
    Ok(Tensor::from_vec(vec![height, width, channels], data))
}

#[cfg(all(test, feature = "image"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_pixels() {
        let file = Tensor::from_vec(vec![17], b"P6\n2 1\n255\n\x01\x02\x03\x04\x05\x06".to_vec());
        let decoded = |p| decode(&file, p).unwrap();
        assert_eq!(
            (decoded(Pixels::Rgb).dims(), &decoded(Pixels::Rgb).bytes()[..]),
            (&[1, 2, 3][..], &[1, 2, 3, 4, 5, 6][..])
        );
        assert_eq!(decoded(Pixels::Bgr).bytes()[..], [3, 2, 1, 6, 5, 4]);
        assert_eq!(decoded(Pixels::Grayscale).dims(), [1, 2, 1]);
        assert_eq!(decode(&Tensor::from_vec(vec![3], vec![1u8, 2, 3]), Pixels::Rgb).unwrap_err().code, "E0303");
        assert!(decode(&Tensor::scalar(1f32), Pixels::Rgb).is_err());
    }
}
