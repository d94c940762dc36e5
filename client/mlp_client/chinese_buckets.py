"""The messages of uploads to buckets in Chinese, by their English ones."""

from __future__ import annotations

BUCKETS = {
    "{dir}: no files to send": "{dir}：没有可发送的文件",
    "{files} files with {bytes} bytes in {dataset}@{version} ({sent} bytes sent)": (
        "{dataset}@{version} 共 {files} 个文件，{bytes} 字节（已发送 {sent} 字节）"
    ),
    "{host}: the answer is too large": "{host}：响应过大",
    "{path} is in the bucket with other content; use --replace to replace it": (
        "存储桶中的 {path} 内容不同；使用 --replace 替换"
    ),
    "{path} is not in the bucket as it was sent": "存储桶中的 {path} 与发送的不一致",
    "{path}: checksum mismatch, also after retries": "{path}：重试后校验和仍不一致",
    "{path}: checksum mismatch, sending it again": "{path}：校验和不一致，正在重新发送",
    "{path}: the bucket does not have all of its parts any more; run the command again": (
        "{path}：存储桶中的分段已不完整；请再次运行该命令"
    ),
    "{path}: the server of the bucket has begun no upload": "{path}：存储桶的服务器未开始上传",
    "{path}: {reason} ({files} files were not sent)": "{path}：{reason}（{files} 个文件未发送）",
    "{problem} (is the region of the bucket right?)": "{problem}（存储桶的区域是否正确？）",
    "keep the files in a bucket: an external dataset": "将文件保存在存储桶中：外部数据集",
    "the bucket has moved to {host}; run the command again": "存储桶已移至 {host}；请再次运行该命令",
    "the dataset {name} is in {place}": "数据集 {name} 位于 {place}",
    "the files of the dataset {name} are not in a bucket": "数据集 {name} 的文件不在存储桶中",
    "uploading": "正在上传",
}
