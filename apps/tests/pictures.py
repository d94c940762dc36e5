"""Pictures of all kinds for tests of /predict, each with what its file says."""

from __future__ import annotations

import io
import zlib

import numpy as np
from PIL import Image, ImageCms

RED, BLUE, WHITE, GREY = [255, 0, 0], [0, 0, 255], [255, 255, 255], [156, 156, 156]
KEEPING = {"JPEG": {"quality": 100, "subsampling": 0}, "WEBP": {"lossless": True}}
ORIENTATION = 0x112


def written(image: Image.Image, kind: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **{**KEEPING.get(kind, {}), **options})
    return file.getvalue()


def of(mode: str, colour, kind: str = "PNG", **options) -> bytes:
    return written(Image.new(mode, (4, 2), colour), kind, **options)


def turned(kind: str, orientation: int) -> bytes:
    """Return a blue picture, four wide, with a red half on the left, and an orientation."""
    image, exif = Image.new("RGB", (32, 16), tuple(BLUE)), Image.Exif()
    image.paste(tuple(RED), (0, 0, 16, 16))
    exif[ORIENTATION] = orientation
    return written(image, kind, exif=exif)


def sixteen(value: int = 40_000) -> Image.Image:
    return Image.fromarray(np.full((2, 4), value, np.uint16))


def palette() -> Image.Image:
    image = Image.new("P", (4, 2), 1)
    image.putpalette([0, 0, 0, 200, 10, 20])
    return image


def swapped() -> bytes:
    """Return a profile like sRGB with red and green swapped."""
    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    return profile.replace(b"rXYZ", b"swap", 1).replace(b"gXYZ", b"rXYZ", 1).replace(b"swap", b"gXYZ", 1)


def own() -> bytes:
    return ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()


def few_bits() -> bytes:
    """Return a grey PNG of two bits, whose only colour is transparent; Pillow writes none."""
    pixels, chunks = zlib.compress(b"\0\x80"), b""
    header = b"\0\0\0\1\0\0\0\1\2\0\0\0\0"
    for kind, data in ((b"IHDR", header), (b"tRNS", b"\0\2"), (b"IDAT", pixels), (b"IEND", b"")):
        chunks += len(data).to_bytes(4) + kind + data + zlib.crc32(kind + data).to_bytes(4)
    return b"\x89PNG\r\n\x1a\n" + chunks


FRAMES = written(
    Image.new("RGB", (4, 2), "red"), "GIF", save_all=True, append_images=[Image.new("RGB", (4, 2), "blue")]
)
RIGHT = {  # for an input of UINT8 and three channels: the first pixel
    "a palette": (written(palette()), [200, 10, 20]),
    "a transparent colour of a palette": (written(palette(), transparency=1), WHITE),
    "a transparent GIF": (written(palette(), "GIF", transparency=1), WHITE),
    "a transparent colour": (of("RGB", (9, 9, 9), transparency=(9, 9, 9)), WHITE),
    "alpha": (of("RGBA", (0, 0, 0, 128)), [127, 127, 127]),
    "grey with alpha": (of("LA", (100, 0)), WHITE),
    "CMYK": (written(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), RED),
    "one bit": (of("1", 1), WHITE),
    "16 bits": (written(sixteen()), GREY),
    "16 bits, TIFF": (written(sixteen(), "TIFF"), GREY),
    "LAB": (of("LAB", (128, 128, 128), "TIFF"), [119, 119, 119]),
    "sRGB's profile": (of("RGB", (255, 1, 51), icc_profile=own()), [255, 1, 51]),
    "another profile": (of("RGB", (255, 0, 0), icc_profile=swapped()), [0, 255, 0]),
    "several frames": (FRAMES, RED),
}  # fmt: skip
REFUSED = {
    "numbers without a range": (of("F", 3.0, "TIFF"), "mode F"),
    "a damaged profile": (of("RGB", (1, 2, 3), icc_profile=b"x" * 200), "colour profile"),
    "a transparent colour of few bits": (few_bits(), "transparent colour"),
    "a bomb": (written(Image.new("1", (20_000, 20_000)), compress_level=1), "pixels"),
    "PostScript": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 1 1\n", "not an image of a format"),
    "cut off": (written(Image.effect_noise((64, 64), 50))[:600], "truncated"),
    "nothing": (b"", "not an image"),
}
