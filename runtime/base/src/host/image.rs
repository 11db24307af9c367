//! the bytes of an image file  =>  u8 [height, width, channels]

use super::Budget;
#[cfg(feature = "image")]
use super::unfit;
#[cfg(feature = "image")]
use crate::{DType, Error};
use crate::{Result, Tensor};
#[cfg(feature = "image")]
use image::{DynamicImage, ImageDecoder, ImageError, ImageReader, Limits};
#[cfg(feature = "image")]
use std::cell::RefCell;
#[cfg(feature = "image")]
use std::io::{BufRead, Cursor, Read, Seek, SeekFrom};

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
pub fn decode(_file: &Tensor, _pixels: Pixels, _budget: &Budget) -> Result<Tensor> {
    Err(super::left_out("ImageDecoder", "image"))
}

/// Memory that a decoder may take: an image that a model can use is far below.
#[cfg(feature = "image")]
const BYTES_MAX: u64 = 1 << 30;

/// Bytes of a file that a decoder is given between two looks at the limits: it makes some megabytes of them at most.
#[cfg(feature = "image")]
const READ_AT_ONCE: usize = 1 << 12;

#[cfg(feature = "image")]
pub fn decode(file: &Tensor, pixels: Pixels, budget: &Budget) -> Result<Tensor> {
    if (file.dtype(), file.rank()) != (DType::U8, 1) {
        return Err(unfit(format!("an image file is a vector of u8, not {} {:?}", file.dtype(), file.dims())));
    }
    let stopped = RefCell::new(None);
    let image =
        image(File { bytes: Cursor::new(file.bytes()), budget, stopped: &stopped }, budget).map_err(|e| match e {
            Refused::Limit(e) => e,
            Refused::Image(e) => {
                let wrong = || Error::user("E0303", format!("the image cannot be decoded: {e}"));
                stopped.take().unwrap_or_else(wrong)
            }
        })?;
    let (height, width) = (image.height() as usize, image.width() as usize);
    let n_channels = if pixels == Pixels::Grayscale { 1 } else { 3 };
    let bytes = height.saturating_mul(width).saturating_mul(n_channels);
    // Where the pixels are others, they are converted into memory of their own.
    budget.take(bytes)?;
    budget.probe(bytes)?;
    let data = match pixels {
        Pixels::Rgb => image.into_rgb8().into_raw(),
        Pixels::Grayscale => image.into_luma8().into_raw(),
        Pixels::Bgr => {
            let mut data = image.into_rgb8().into_raw();
            for row in data.chunks_mut(3 * READ_AT_ONCE) {
                budget.work(READ_AT_ONCE)?;
                row.chunks_exact_mut(3).for_each(|p| p.swap(0, 2));
            }
            data
        }
    };
    Ok(Tensor::from_vec(vec![height, width, n_channels], data))
}

#[cfg(feature = "image")]
enum Refused {
    Limit(Box<Error>),
    Image(ImageError),
}

/// The image, whose size is compared with the limits before it is decoded.
#[cfg(feature = "image")]
fn image(file: File, budget: &Budget) -> std::result::Result<DynamicImage, Refused> {
    let mut reader = ImageReader::new(file).with_guessed_format().map_err(|e| Refused::Image(e.into()))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(BYTES_MAX);
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder().map_err(Refused::Image)?;
    limits.reserve(decoder.total_bytes()).map_err(Refused::Image)?;
    let bytes = usize::try_from(decoder.total_bytes()).unwrap_or(usize::MAX);
    budget.take(bytes).and_then(|()| budget.probe(bytes)).map_err(Refused::Limit)?;
    decoder.set_limits(limits).and_then(|()| DynamicImage::from_decoder(decoder)).map_err(Refused::Image)
}

/// The file as a decoder reads it: a little at a time, and not at all once the call is to end.
#[cfg(feature = "image")]
struct File<'a> {
    bytes: Cursor<&'a [u8]>,
    budget: &'a Budget<'a>,
    /// Why it was not read further.
    stopped: &'a RefCell<Option<Box<Error>>>,
}

#[cfg(feature = "image")]
impl File<'_> {
    fn count(&self, bytes: usize) -> std::io::Result<()> {
        if let Some(e) = &*self.stopped.borrow() {
            return Err(std::io::Error::other(e.message.clone()));
        }
        self.budget.work(1 + 4 * bytes).map_err(|e| {
            let message = std::io::Error::other(e.message.clone());
            self.stopped.replace(Some(e));
            message
        })
    }
}

#[cfg(feature = "image")]
impl Read for File<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = into.len().min(READ_AT_ONCE);
        self.count(n)?;
        self.bytes.read(&mut into[..n])
    }
}

#[cfg(feature = "image")]
impl BufRead for File<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.count(0)?;
        let rest = self.bytes.fill_buf()?;
        Ok(&rest[..rest.len().min(READ_AT_ONCE)])
    }

    fn consume(&mut self, bytes: usize) {
        // What cannot be said here is said by the next read.
        let _ = self.count(bytes);
        self.bytes.consume(bytes);
    }
}

#[cfg(feature = "image")]
impl Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.bytes.seek(to)
    }
}

#[cfg(all(test, feature = "image"))]
mod tests {
    use super::*;

    #[test]
    fn a_file_becomes_pixels() {
        let file = Tensor::from_vec(vec![17], b"P6\n2 1\n255\n\x01\x02\x03\x04\x05\x06".to_vec());
        let decoded = |p| decode(&file, p, &Budget::unlimited()).unwrap();
        assert_eq!(
            (decoded(Pixels::Rgb).dims(), &decoded(Pixels::Rgb).bytes()[..]),
            (&[1, 2, 3][..], &[1, 2, 3, 4, 5, 6][..])
        );
        assert_eq!(decoded(Pixels::Bgr).bytes()[..], [3, 2, 1, 6, 5, 4]);
        assert_eq!(decoded(Pixels::Grayscale).dims(), [1, 2, 1]);
        assert_eq!(
            decode(&Tensor::from_vec(vec![3], vec![1u8, 2, 3]), Pixels::Rgb, &Budget::unlimited()).unwrap_err().code,
            "E0303"
        );
        assert!(decode(&Tensor::scalar(1f32), Pixels::Rgb, &Budget::unlimited()).is_err());
    }
}
