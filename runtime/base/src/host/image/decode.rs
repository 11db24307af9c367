//! the bytes of an image file  =>  u8 [height, width, channels]

use super::Pixels;
use crate::host::{Budget, budget::PIECE, unfit};
use crate::{DType, Error, Result, Tensor};
use image::{
    DynamicImage, GrayImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits, RgbImage, error::DecodingError,
};
use std::cell::RefCell;
use std::io::{BufRead, Cursor, Read, Seek, SeekFrom};
use zune_jpeg::zune_core::{colorspace::ColorSpace, options::DecoderOptions};
use zune_jpeg::{JpegDecoder, errors::DecodeErrors};

/// Maximum number of bytes of an image's pixels and, except for JPEG, of its decoder's own memory; images for models
/// need far less.
const BYTES_MAX: u64 = 1 << 30;

/// Maximum number of bytes of a file that a decoder reads between two checks of the limits; so many bytes decode to a
/// few megabytes of pixels at most.
const READ_AT_ONCE: usize = 1 << 12;

pub fn decode(file: &Tensor, pixels: Pixels, budget: &Budget) -> Result<Tensor> {
    if (file.dtype(), file.rank()) != (DType::U8, 1) {
        return Err(unfit(format!("an image file is a vector of u8, not {} {:?}", file.dtype(), file.dims())));
    }
    let stopped = RefCell::new(None);
    let decoded = image(File { bytes: Cursor::new(file.bytes()), budget, stopped: &stopped }, budget);
    // A decoder may take the error that stopped reading for the end of the file, and return an image.
    if let Some(e) = stopped.take() {
        return Err(e);
    }
    let image = decoded.map_err(|e| match e {
        Refused::Limit(e) => e,
        Refused::Image(e) => Error::user("E0303", format!("the image cannot be decoded: {e}")),
    })?;
    let n_channels = if pixels == Pixels::Grayscale { 1 } else { 3 };
    let dims = vec![image.height() as usize, image.width() as usize, n_channels];
    let bytes = dims.iter().fold(1, |n: usize, &dim| n.saturating_mul(dim));
    let as_they_are = matches!((&image, pixels), (DynamicImage::ImageRgb8(_), Pixels::Rgb | Pixels::Bgr))
        || matches!((&image, pixels), (DynamicImage::ImageLuma8(_), Pixels::Grayscale));
    let mut data = if as_they_are { image.into_bytes() } else { converted(&image, n_channels, bytes, budget)? };
    if pixels == Pixels::Bgr {
        for row in data.chunks_mut(3 * PIECE) {
            budget.work(PIECE)?;
            row.chunks_exact_mut(3).for_each(|p| p.swap(0, 2));
        }
    }
    Ok(Tensor::from_vec(dims, data))
}

/// Converts the pixels to 1 or 3 channels: some rows at a time, or parts of a row if it has more than `PIECE` pixels.
fn converted(image: &DynamicImage, n_channels: usize, bytes: usize, budget: &Budget) -> Result<Vec<u8>> {
    let mut data = budget.room(bytes)?;
    let (height, width) = (image.height(), image.width());
    let n_rows = (PIECE as u32 / width.max(1)).max(1);
    for y in (0..height).step_by(n_rows as usize) {
        for x in (0..width).step_by(PIECE) {
            budget.work(PIECE)?;
            let part = image.crop_imm(x, y, width.min(PIECE as u32), n_rows);
            data.extend(if n_channels == 1 { part.into_luma8().into_raw() } else { part.into_rgb8().into_raw() });
        }
    }
    Ok(data)
}

enum Refused {
    Limit(Box<Error>),
    Image(ImageError),
}

/// Compares the size of the image with the limits, and then decodes the image.
fn image(file: File, budget: &Budget) -> std::result::Result<DynamicImage, Refused> {
    let mut reader = ImageReader::new(file).with_guessed_format().map_err(|e| Refused::Image(e.into()))?;
    let mut limits = Limits::default();
    limits.max_alloc = Some(BYTES_MAX);
    // The decoder itself may use the memory that the pixels do not need.
    let rest = |pixels: u64| {
        let mut rest = limits.clone();
        rest.reserve(pixels).map_err(Refused::Image)?;
        let bytes = usize::try_from(pixels).unwrap_or(usize::MAX);
        budget.take(bytes).and_then(|()| budget.probe(bytes)).map_err(Refused::Limit).map(|()| rest)
    };
    if reader.format() == Some(ImageFormat::Jpeg) {
        return jpeg(reader.into_inner(), |pixels| rest(pixels).map(drop));
    }
    reader.limits(limits.clone());
    let mut decoder = reader.into_decoder().map_err(Refused::Image)?;
    let rest = rest(decoder.total_bytes())?;
    decoder.set_limits(rest).and_then(|()| DynamicImage::from_decoder(decoder)).map_err(Refused::Image)
}

/// Decodes a JPEG image with the decoder that the crate `image` uses as well. That crate would read the whole file
/// before it decodes, so decoding could not be stopped early.
fn jpeg(
    file: File,
    fits: impl Fn(u64) -> std::result::Result<(), Refused>,
) -> std::result::Result<DynamicImage, Refused> {
    let wrong = |e| Refused::Image(ImageError::Decoding(DecodingError::new(ImageFormat::Jpeg.into(), e)));
    let options = DecoderOptions::default().set_strict_mode(false).set_max_width(usize::MAX).set_max_height(usize::MAX);
    let mut decoder = JpegDecoder::new_with_options(file, options);
    decoder.decode_headers().map_err(wrong)?;
    let is_gray = matches!(decoder.input_colorspace(), Some(ColorSpace::Luma));
    let colors = if is_gray { ColorSpace::Luma } else { ColorSpace::RGB };
    decoder.set_options(options.jpeg_set_out_colorspace(colors));
    let (width, height) = decoder.dimensions().unwrap_or((0, 0));
    let mut data = vec![];
    fits(colors.num_components() as u64 * width as u64 * height as u64)?;
    data.resize(colors.num_components() * width * height, 0);
    decoder.decode_into(&mut data).map_err(wrong)?;
    let (width, height) = (width as u32, height as u32);
    let image = if is_gray {
        GrayImage::from_raw(width, height, data).map(DynamicImage::ImageLuma8)
    } else {
        RgbImage::from_raw(width, height, data).map(DynamicImage::ImageRgb8)
    };
    image.ok_or_else(|| wrong(DecodeErrors::FormatStatic("its pixels are not as many as its size says")))
}

/// Gives a decoder at most `READ_AT_ONCE` bytes of the file at a time, and an error once the call must end.
struct File<'a> {
    bytes: Cursor<&'a [u8]>,
    budget: &'a Budget<'a>,
    /// The error of `budget` that stopped reading, if any.
    stopped: &'a RefCell<Option<Box<Error>>>,
}

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

impl Read for File<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let n = into.len().min(READ_AT_ONCE);
        self.count(n)?;
        self.bytes.read(&mut into[..n])
    }
}

impl BufRead for File<'_> {
    fn fill_buf(&mut self) -> std::io::Result<&[u8]> {
        self.count(0)?;
        let rest = self.bytes.fill_buf()?;
        Ok(&rest[..rest.len().min(READ_AT_ONCE)])
    }

    fn consume(&mut self, bytes: usize) {
        // The next read reports an error that occurs here.
        let _ = self.count(bytes);
        self.bytes.consume(bytes);
    }
}

impl Seek for File<'_> {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.bytes.seek(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Limits as CallLimits;
    use image::codecs::jpeg::JpegEncoder;
    use std::cell::Cell;

    fn decoded(file: &[u8], pixels: Pixels, budget: &Budget) -> Result<Tensor> {
        decode(&Tensor::from_vec(vec![file.len()], file.to_vec()), pixels, budget)
    }

    #[test]
    fn a_file_becomes_pixels() {
        let file = b"P6\n2 1\n255\n\x01\x02\x03\x04\x05\x06";
        let decoded = |p| decoded(file, p, &Budget::unlimited()).unwrap();
        let rgb = decoded(Pixels::Rgb);
        assert_eq!((rgb.dims(), &rgb.bytes()[..]), (&[1, 2, 3][..], &[1, 2, 3, 4, 5, 6][..]));
        assert_eq!(decoded(Pixels::Bgr).bytes()[..], [3, 2, 1, 6, 5, 4]);
        assert_eq!(decoded(Pixels::Grayscale).dims(), [1, 2, 1]);
    }

    #[test]
    fn what_is_no_image_is_refused() {
        assert_eq!(decoded(&[1, 2, 3], Pixels::Rgb, &Budget::unlimited()).unwrap_err().code, "E0303");
        assert!(decode(&Tensor::scalar(1f32), Pixels::Rgb, &Budget::unlimited()).is_err());
    }

    /// The rows of the first image are converted in parts, those of the second image several at a time.
    #[test]
    fn parts_make_the_whole() {
        for (width, height) in [(3 * PIECE + 5, 2), (1000, 11)] {
            let mut file = format!("P5\n{width} {height}\n255\n").into_bytes();
            let gray: Vec<u8> = (0..width * height).map(|i| (i % 251) as u8).collect();
            file.extend(&gray);
            let rgb = decoded(&file, Pixels::Rgb, &Budget::unlimited()).unwrap();
            let wanted: Vec<u8> = gray.iter().flat_map(|&g| [g; 3]).collect();
            assert!(rgb.dims() == [height, width, 3] && rgb.bytes()[..] == wanted[..]);
        }
    }

    /// Number of checks of the limits that still succeed.
    struct Looks(Cell<usize>);

    impl CallLimits for Looks {
        fn go_on(&self) -> Result<()> {
            let left = self.0.get().checked_sub(1).ok_or_else(|| Error::user("E0305", "the deadline has passed"))?;
            self.0.set(left);
            Ok(())
        }

        fn allow(&self, _bytes: usize) -> Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_photograph_ends_early() {
        let side = 256u32;
        let data: Vec<u8> = (0..side * side * 3).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for (gray, data) in [(false, &data[..]), (true, &data[..(side * side) as usize])] {
            let mut file = vec![];
            let colors = if gray { image::ExtendedColorType::L8 } else { image::ExtendedColorType::Rgb8 };
            JpegEncoder::new(&mut file).encode(data, side, side, colors).unwrap();
            let whole = decoded(&file, Pixels::Rgb, &Budget::unlimited()).unwrap();
            let wanted = image::load_from_memory(&file).unwrap().into_rgb8();
            assert!(whole.bytes()[..] == wanted.as_raw()[..]);
            for looks in 0.. {
                match decoded(&file, Pixels::Rgb, &Budget::new(&Looks(Cell::new(looks)))) {
                    Err(e) => assert_eq!(e.code, "E0305"),
                    Ok(found) => {
                        assert!(found == whole && looks > 2, "{looks} looks");
                        break;
                    }
                }
            }
        }
    }
}
