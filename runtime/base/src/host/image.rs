//! the pixel formats to which an image is decoded; without the feature `image`, decoding is refused

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
    /// Luma only: one channel.
    Grayscale,
}

impl Pixels {
    /// All formats, each at the index that represents it in a plan.
    pub const ALL: [Pixels; 3] = [Pixels::Rgb, Pixels::Bgr, Pixels::Grayscale];
}

#[cfg(not(feature = "image"))]
pub fn decode(_file: &crate::Tensor, _pixels: Pixels, _budget: &super::Budget) -> crate::Result<crate::Tensor> {
    Err(super::left_out("ImageDecoder", "image"))
}
