"""Pictures as pixels of a model's input, as everything in their file says; called by bodies.py.

A picture is either right or refused by name: turned as its EXIF orientation says, in the colours of sRGB, transparent
parts on white where the model takes no alpha, and of 8 bits a channel, but for grey ones of 16 bits for floats.
"""

from __future__ import annotations

import io
import math

import numpy as np
from values import BadRequest

TAKES = (
    "the file to an input of BYTES, else its pixels: turned as EXIF says, in sRGB by the file's colour profile (CMYK "
    "without one by the simple formula), the first of several frames, transparency on white unless the input takes "
    "four channels, resized to the sides that the input fixes; channels as its shape has them, 8 bits each (a grey one "
    "of 16 bits keeps them for floats), floats from 0 to 1. JPEG, PNG, WebP, GIF, BMP, TIFF, AVIF, JPEG 2000, PPM, "
    "TGA, ICO"
)
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "AVIF", "JPEG2000", "PPM", "TGA", "ICO")
MAX_PIXELS = 64 << 20
ROUNDED = 2  # of 255, between two profiles of sRGB
SIXTEEN = ("I;16", "I;16L", "I;16B", "I;16N")
MODES = ("1", "L", "LA", "La", "P", "PA", "RGB", "RGBA", "RGBa", "RGBX", "CMYK", "YCbCr", "LAB", *SIXTEEN)
WHITE_IS_ZERO, PHOTOMETRIC = 0, 262  # of TIFF


def pixels(body: bytes, spec: dict) -> np.ndarray:
    """Return the pixels of a picture in the shape that the input declares. Raises BadRequest."""
    shape = spec["shape"]
    sides = shape[1:] if len(shape) == 4 else shape
    if len(sides) not in (2, 3) or (len(sides) == 2 and (sides[0] == -1) != (sides[1] == -1)):  # -1, 5: rows of five
        raise BadRequest(f"{spec['name']}: an image does not fit the shape {shape}")
    first = len(sides) == 3 and sides[0] in (1, 3, 4)  # channels first, as in PyTorch
    channels = 1 if len(sides) == 2 else sides[0] if first else sides[2] if sides[2] in (1, 3, 4) else 3
    height, width = sides[1:] if first else sides[:2]
    floats = spec["datatype"].startswith("FP")
    try:
        image = _opened(body, channels, floats)
    except BadRequest:
        raise
    except Exception as problem:  # Pillow raises nearly any for a damaged file
        raise BadRequest(f"body: not an image that can be read ({problem or type(problem).__name__})")
    size = (image.width if width == -1 else width, image.height if height == -1 else height)
    if 0 in size or math.prod(size) > MAX_PIXELS:
        raise BadRequest(f"{spec['name']}: an image does not fit the shape {shape}")
    values = np.asarray(image if image.size == size else image.resize(size))
    values = values.reshape(size[1], size[0], channels)
    if len(sides) == 2:
        values = values[:, :, 0]
    elif first:
        values = values.transpose(2, 0, 1)
    if floats:
        values = np.divide(values, 255, dtype=np.float64 if spec["datatype"] == "FP64" else np.float32)
        values = np.clip(values, 0, 1, out=values)
    return values[np.newaxis] if len(shape) == 4 else values


def _opened(body: bytes, channels: int, floats: bool):
    from PIL import Image, ImageOps

    try:
        image = Image.open(io.BytesIO(body), formats=FORMATS)
    except Image.DecompressionBombError:
        raise BadRequest(f"body: an image of more than {MAX_PIXELS} pixels")
    except Image.UnidentifiedImageError:
        raise BadRequest("body: not an image of a format that is read here; see /schema")
    with image:
        if math.prod(image.size) > MAX_PIXELS:
            raise BadRequest(f"body: an image of more than {MAX_PIXELS} pixels")
        if image.mode not in MODES and not (image.mode == "I" and image.format in ("PNG", "PPM")):
            raise BadRequest(
                f"body: a {image.format} image of mode {image.mode} has no known range; send it as application/x-npy"
            )
        _check_transparent_colour(image)
        image.load()
        turned = ImageOps.exif_transpose(image)
        turned.info = {**image.info, **turned.info}
        if image.mode.startswith("I"):
            negative = image.format == "TIFF" and image.tag_v2.get(PHOTOMETRIC) == WHITE_IS_ZERO
            return _grey(turned, channels, floats, negative)
        return _with_channels(_in_srgb(_plain_mode(turned)), channels)


def _check_transparent_colour(image) -> None:
    """Raise BadRequest where a colour is transparent that Pillow compares with pixels of another depth."""
    colour = image.info.get("transparency")
    parts = colour if isinstance(colour, tuple) else (colour,)
    deep = any(isinstance(part, int) and part > 255 for part in parts)
    shallow = image.mode == "L" and any(tile[3] in ("L;2", "L;4") for tile in image.tile)
    if colour is not None and (deep or shallow or image.mode.startswith("I")):
        raise BadRequest("body: an image with a transparent colour and another depth than 8 bits; save it with 8 bits")


def _grey(image, channels: int, floats: bool, negative: bool):
    """Return a picture of 16 bits: from 0 to 255, with fractions for floats of one channel, else rounded."""
    from PIL import Image

    values = np.asarray(image.convert("I")).astype(np.float32)
    values = 65535 - values if negative else values
    if channels == 1 and floats and "icc_profile" not in image.info:
        return Image.fromarray(values / 257)
    rounded = Image.fromarray(np.round(values / 257).astype(np.uint8))
    rounded.info = dict(image.info)
    return _with_channels(_in_srgb(rounded), channels)


def _plain_mode(image):
    """Return a picture as L, LA, RGB, RGBA, CMYK or LAB, a palette and a transparent colour resolved."""
    if image.mode in ("RGBa", "La"):
        return image.convert({"RGBa": "RGBA", "La": "LA"}[image.mode])
    if image.mode in ("P", "PA") or "transparency" in image.info:
        alpha = image.mode == "PA" or "transparency" in image.info
        return image.convert("RGBA" if alpha else "RGB")
    other = {"1": "L", "YCbCr": "RGB", "RGBX": "RGB"}.get(image.mode)
    return image.convert(other) if other else image


def _in_srgb(image):
    """Return a picture in sRGB if its file has a colour profile; its alpha channel stays as it is. The many profiles of
    sRGB differ by rounding only, and change nothing.
    """
    from PIL import ImageChops, ImageCms

    profile = image.info.get("icc_profile")
    if image.mode == "LAB":
        return ImageCms.profileToProfile(
            image, ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"), outputMode="RGB"
        )
    if not profile:
        return image
    try:
        source = ImageCms.ImageCmsProfile(io.BytesIO(profile))
        alpha = image.getchannel("A") if image.mode in ("LA", "RGBA") else None
        space = source.profile.xcolor_space.strip()
        colours = image.convert({"GRAY": "L", "RGB": "RGB", "CMYK": "CMYK"}[space])
        if image.mode == "CMYK" and space != "CMYK":
            raise ValueError(f"a profile of {space} for CMYK")
        converted = ImageCms.profileToProfile(colours, source, ImageCms.createProfile("sRGB"), outputMode="RGB")
    except (ImageCms.PyCMSError, ValueError, KeyError, OSError) as problem:
        raise BadRequest(f"body: the image's colour profile cannot be used ({problem}); save it as sRGB")
    if colours.mode == "RGB":
        differences = ImageChops.difference(converted, colours).getextrema()
        if max(most for _least, most in differences) <= ROUNDED:
            return image
    if alpha is not None:
        converted.putalpha(alpha)
    return converted


def _with_channels(image, channels: int):
    """Return a picture of 1, 3 or 4 channels, transparent parts on white unless it has an alpha channel itself."""
    from PIL import Image

    if channels == 4:
        return image.convert("RGBA")
    if image.mode in ("LA", "RGBA"):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert({1: "L", 3: "RGB"}[channels])
