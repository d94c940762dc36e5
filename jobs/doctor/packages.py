"""The package that provides a module, where the two have different names."""

from __future__ import annotations

PACKAGES = {
    "attr": "attrs",
    "Bio": "biopython",
    "bs4": "beautifulsoup4",
    "cairo": "pycairo",
    "clip": "openai-clip",
    "community": "python-louvain",
    "Crypto": "pycryptodome",
    "cv2": "opencv-python-headless",
    "dateutil": "python-dateutil",
    "decord": "decord",
    "detectron2": "detectron2 (from its repository)",
    "discord": "discord.py",
    "docx": "python-docx",
    "dotenv": "python-dotenv",
    "faiss": "faiss-cpu",
    "fitz": "pymupdf",
    "git": "GitPython",
    "google.cloud": "google-cloud-storage",
    "google.protobuf": "protobuf",
    "gym": "gymnasium",
    "hydra": "hydra-core",
    "igraph": "python-igraph",
    "imblearn": "imbalanced-learn",
    "jwt": "PyJWT",
    "kafka": "kafka-python",
    "lightning": "lightning",
    "magic": "python-magic",
    "mpl_toolkits": "matplotlib",
    "mysql": "mysql-connector-python",
    "MySQLdb": "mysqlclient",
    "nmslib": "nmslib",
    "OpenSSL": "pyOpenSSL",
    "osgeo": "GDAL",
    "past": "future",
    "PIL": "pillow",
    "pkg_resources": "setuptools",
    "pl_bolts": "lightning-bolts",
    "pptx": "python-pptx",
    "psycopg2": "psycopg2-binary",
    "pycocotools": "pycocotools",
    "pytorch_lightning": "pytorch-lightning",
    "rdkit": "rdkit",
    "ruamel": "ruamel.yaml",
    "segment_anything": "segment-anything (from its repository)",
    "serial": "pyserial",
    "skimage": "scikit-image",
    "sklearn": "scikit-learn",
    "slugify": "python-slugify",
    "sentence_transformers": "sentence-transformers",
    "SimpleITK": "SimpleITK",
    "skopt": "scikit-optimize",
    "snappy": "python-snappy",
    "socks": "PySocks",
    "tensorboardX": "tensorboardX",
    "tf_keras": "tf-keras",
    "tree": "dm-tree",
    "umap": "umap-learn",
    "usb": "pyusb",
    "websocket": "websocket-client",
    "win32api": "pywin32",
    "wx": "wxPython",
    "yaml": "PyYAML",
    "Levenshtein": "python-Levenshtein",
    "zmq": "pyzmq",
}


def package_of(module: str) -> str:
    """Return the package that provides the module: by the longest prefix in the table, else the module's first name."""
    parts = module.split(".")
    for length in range(len(parts), 0, -1):
        name = ".".join(parts[:length])
        if name in PACKAGES:
            return PACKAGES[name]
    return parts[0].replace("_", "-")
