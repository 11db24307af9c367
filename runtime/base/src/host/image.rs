//! The pixel formats to which an image is decoded; without the feature `image`, decoding is an error

#[cfg(feature = "image")]
mod decode;

#[cfg(feature = "image")]
pub use decode::decode;

/// The channels of a pixel, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Pixels {
    /// Red, green, blue.
    Rgb,
    /// Blue, green, red.
    Bgr,
    /// One channel: luma.
    Grayscale,
}

impl Pixels {
    /// All formats; a plan stores a format as its index in this array.
    pub const ALL: [Pixels; 3] = [Pixels::Rgb, Pixels::Bgr, Pixels::Grayscale];
}

/// Returns the error E0405: this build contains no image decoder.
#[cfg(not(feature = "image"))]
pub fn decode(_file: &crate::Tensor, _pixels: Pixels, _budget: &super::Budget) -> crate::Result<crate::Tensor> {
    Err(super::left_out("ImageDecoder", "image"))
}
