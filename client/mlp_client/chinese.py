"""The Chinese messages by their English ones; a test compares them with those that the code has."""

from __future__ import annotations

TEXTS = {
    "Password of {user} at {url}: ": "{user} 在 {url} 的密码：",
    "Run jobs on the platform, follow them, and fetch what they write.": "在平台上运行任务、跟踪任务并下载其输出。",
    "Username: ": "用户名：",
    "address of the platform": "平台的地址",
    "address of the platform, such as http://host:30001": "平台的地址，例如 http://host:30001",
    "certificates to trust instead of the system's": "代替系统证书的受信任证书文件",
    "checksum mismatch, also after retries": "多次重试后校验和仍不一致",
    "connection (or MLP_URL, MLP_TOKEN, MLP_PROFILE, MLP_CACERT)": (
        "连接（或环境变量 MLP_URL、MLP_TOKEN、MLP_PROFILE、MLP_CACERT）"
    ),
    "error: {line}": "错误：{line}",
    "exit codes:": "退出码：",
    "interrupted": "已中断",
    "invalid options or arguments": "选项或参数无效",
    "invalid token: it is empty, or has spaces or non-ASCII characters": "令牌无效：为空，或含有空格或非 ASCII 字符",
    "local error: a file cannot be read or written": "本地错误：文件无法读取或写入",
    "log in and save the token": "登录并保存令牌",
    "no username or no password given": "未提供用户名或密码",
    "not logged in, or invalid token": "未登录，或令牌无效",
    "not logged in; run: mlp login URL (or set MLP_URL and MLP_TOKEN)": (
        "未登录；请运行：mlp login URL（或设置 MLP_URL 和 MLP_TOKEN）"
    ),
    "output and retries": "输出与重试",
    "owner of the objects (default: the user of the token)": "对象的所有者（默认为令牌的用户）",
    "print only results and errors": "只输出结果和错误",
    "print the result as JSON": "以 JSON 输出结果",
    "print the user, the address and the profile": "显示用户、地址和配置名",
    "read the token from standard input": "从标准输入读取令牌",
    "refused by the platform": "被平台拒绝",
    "remove the saved token": "删除已保存的令牌",
    "retry for S seconds (default: 300)": "重试 S 秒（默认 300）",
    "saved login to use (default: the last one)": "使用的已保存登录（默认为最近一次）",
    "success": "成功",
    "the platform was unreachable or failing for longer than --patience": "平台无法访问或出错的时间超过 --patience",
    "there is no profile {name}": "没有名为 {name} 的配置",
    "there is no profile {name}; run: mlp login URL --profile {name}": (
        "没有名为 {name} 的配置；请运行：mlp login URL --profile {name}"
    ),
    "this is a token of {user}, not of {other}": "这是 {user} 的令牌，不是 {other} 的",
    "token; other users of the machine can see it while the command runs": "令牌；命令运行时本机其他用户可以看到它",
    "{file} cannot be read: {problem}": "无法读取 {file}：{problem}",
    "{file} cannot be written: {problem}": "无法写入 {file}：{problem}",
    "{file}: no certificates ({problem})": "{file}：没有证书（{problem}）",
    "{name}: {value}": "{name}：{value}",
    "{problem} (run: mlp login {url})": "{problem}（请运行：mlp login {url}）",
    "{url} is not a platform: HTTP {status}": "{url} 不是本平台：HTTP {status}",
    "{url} redirects to {place}; log in there": "{url} 重定向到 {place}；请登录该地址",
    "{url}: no TLS there ({problem}); http://?": "{url}：该处没有 TLS（{problem}）；是否应为 http://？",
    "{url}: the certificate is not trusted: {problem} (--cacert FILE trusts that of your platform)": (
        "{url}：证书不受信任：{problem}（--cacert FILE 可信任您平台的证书）"
    ),
}
