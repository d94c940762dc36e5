"""Converts arrays, tensors, pictures, figures and audio samples to files: PNG and WAV.

Standard library only. numpy is used if the script has imported it; PIL and matplotlib objects encode themselves.
"""

import io
import math
import os
import struct
import sys
import wave
import zlib

PICTURES = {b"\x89PNG\r\n\x1a\n": "png", b"\xff\xd8\xff": "jpg", b"GIF87a": "gif", b"GIF89a": "gif"}
SOUNDS = {b"OggS": "ogg", b"fLaC": "flac", b"ID3": "mp3", b"\xff\xfb": "mp3", b"\xff\xf3": "mp3", b"\xff\xf2": "mp3"}
MAX_PIXELS = 40000000
MAX_CHANNELS = 8
MAX_FILE = 32 << 20


class Unfit(Exception):
    """The value cannot be logged; the message gives the reason."""


def picture(value):
    """Return (bytes, extension) of a picture: an array, a tensor, a PIL image, a figure, a path, or an encoded file."""
    data = _bytes_of(value)
    if data is not None:
        kind = _kind(data, PICTURES, b"WEBP", "webp")
        if not kind:
            raise Unfit("it is not a PNG, JPEG, GIF or WebP file")
        return data, kind
    out = io.BytesIO()
    if hasattr(value, "savefig"):  # matplotlib
        value.savefig(out, format="png")
        return out.getvalue(), "png"
    if hasattr(value, "save") and hasattr(value, "mode"):  # PIL
        _check_pixels(*value.size)
        value.save(out, format="PNG")
        return out.getvalue(), "png"
    width, height, channels, pixels = _pixels(value)
    return png(width, height, channels, pixels), "png"


def sound(value, rate):
    """Return (bytes, extension) of audio: samples and their rate, a path, or an encoded file."""
    data = _bytes_of(value)
    if data is not None:
        kind = _kind(data, SOUNDS, b"WAVE", "wav")
        if not kind:
            raise Unfit("it is not a WAV, MP3, Ogg or FLAC file")
        return data, kind
    if isinstance(rate, bool) or not isinstance(rate, (int, float)) or not 1 <= rate <= 768000:
        raise Unfit("samples need a rate in hertz")
    frames, channels = _samples(value)
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(int(rate))
        file.writeframes(frames)
    return out.getvalue(), "wav"


def png(width, height, channels, pixels):
    """Return a PNG file of 8-bit pixels with 1 to 4 channels: grey, grey and alpha, RGB, RGBA."""
    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    row = width * channels
    lines = b"".join(b"\0" + pixels[at : at + row] for at in range(0, row * height, row))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data) & 0xFFFFFFFF)

    head = struct.pack(">IIBBBBB", width, height, 8, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines, 6)) + chunk(b"IEND", b"")


def plain(value):
    """Return a tensor or array as a numpy array if numpy is loaded, else as nested lists; and whether it is torch's."""
    tensor = hasattr(value, "detach")
    if tensor:
        value = value.detach().cpu()
        if "bfloat16" in str(value.dtype):
            value = value.float()
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(value, "__array__"):
        return numpy.asarray(value), tensor
    return (value.tolist() if hasattr(value, "tolist") else value), tensor


def numbers(value):
    """Return all numbers of an array, tensor or nested list as a flat list of floats."""
    value, _ = plain(value)
    if hasattr(value, "ravel"):
        return [float(number) for number in value.ravel().tolist()]
    return [float(number) for number in _flat(value)]


def _bytes_of(value):
    """Return the content if the value is a path or an encoded file; None for any other value."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        data = bytes(value)
    elif isinstance(value, (str, os.PathLike)):
        if os.path.getsize(value) > MAX_FILE:
            raise Unfit(f"the file is larger than {MAX_FILE >> 20} MiB")
        with open(value, "rb") as file:
            data = file.read(MAX_FILE + 1)
    else:
        return None
    if len(data) > MAX_FILE:
        raise Unfit(f"it is larger than {MAX_FILE >> 20} MiB")
    return data


def _kind(data, kinds, riff, of_riff):
    if data[:4] == b"RIFF" and data[8:12] == riff:
        return of_riff
    return next((kind for magic, kind in kinds.items() if data.startswith(magic)), "")


def _check_pixels(width, height):
    if not 0 < width * height <= MAX_PIXELS:
        raise Unfit(f"{width} x {height} pixels cannot be shown; at most {MAX_PIXELS}")


def _shape(value):
    if hasattr(value, "shape"):
        return tuple(value.shape)
    shape = []
    while isinstance(value, (list, tuple)):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape)


def _pixels(value):
    """Return (width, height, channels, bytes) of an array HxW or HxWxC, or of a torch tensor CxHxW."""
    array, tensor = plain(value)
    shape = _shape(array)
    first = len(shape) == 3 and shape[0] in (1, 3, 4) and (tensor or shape[2] not in (1, 2, 3, 4))
    if len(shape) not in (2, 3) or (len(shape) == 3 and not first and shape[2] not in (1, 2, 3, 4)):
        wanted = "height x width, height x width x channels, or channels x height x width, of 1 to 4 channels"
        raise Unfit(f"the shape {shape} is not that of a picture: {wanted}")
    channels = 1 if len(shape) == 2 else shape[0] if first else shape[2]
    height, width = shape[1:] if first else shape[:2]
    _check_pixels(width, height)
    if hasattr(array, "astype"):
        array = array.transpose(1, 2, 0) if first else array
        return width, height, channels, _bytes_of_array(array)
    if first:
        array = [[[plane[y][x] for plane in array] for x in range(width)] for y in range(height)]
    flat = list(_flat(array))
    scale = 255 if any(isinstance(number, (float, bool)) for number in flat) else 1
    return width, height, channels, bytes(_byte(number * scale) for number in flat)


def _bytes_of_array(array):
    numpy = sys.modules["numpy"]
    if array.dtype.kind not in "bfiu":
        raise Unfit("its values are not numbers")
    if array.dtype.kind in "bf":  # 0 to 1
        array = numpy.nan_to_num(array.astype("float64"), nan=0.0, posinf=1.0, neginf=0.0) * 255
    return numpy.clip(numpy.rint(array), 0, 255).astype("uint8").tobytes()


def _byte(number):
    return 0 if number != number else int(max(0, min(255, round(max(-1, min(256, number))))))


def _samples(value):
    """Return (16-bit frames, channels) of samples, or of samples x channels, or of channels x samples."""
    array, _ = plain(value)
    shape = _shape(array)
    if len(shape) not in (1, 2) or not all(shape):
        raise Unfit(f"the shape {shape} is not that of audio: samples, or samples x channels")
    channels = min(shape) if len(shape) == 2 else 1
    if channels > MAX_CHANNELS or 2 * math.prod(shape) > MAX_FILE:
        raise Unfit(f"it has too many channels, or is longer than {MAX_FILE >> 20} MiB")
    turned = len(shape) == 2 and shape[0] < shape[1]
    if hasattr(array, "astype"):
        numpy = sys.modules["numpy"]
        array = array.T if turned else array
        if array.dtype.kind == "f":
            array = numpy.nan_to_num(array.astype("float64")) * 32767
        return numpy.clip(numpy.rint(array), -32768, 32767).astype("<i2").tobytes(), channels
    flat = list(_flat(zip(*array) if turned else array))  # noqa: B905 (Python 3.10)
    scale = 32767 if any(isinstance(number, float) for number in flat) else 1
    whole = [int(max(-32768, min(32767, 0 if number != number else number * scale))) for number in flat]
    return struct.pack(f"<{len(whole)}h", *whole), channels


def _flat(value):
    for element in value:
        if isinstance(element, (list, tuple)):
            yield from _flat(element)
        elif getattr(element, "shape", ()):
            yield from numbers(element)
        else:
            yield element
