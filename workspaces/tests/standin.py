"""A stand-in for JupyterLab in the quick tests: a small HTTP and websocket server, started as lab.py is."""

from __future__ import annotations

import asyncio
import hmac
import json
import os
import socket
import sys
from pathlib import Path

from aiohttp import WSMsgType, web
from furnish import furnish

SECRET = os.environ.pop("MLP_APP_SECRET", "")
BASE, ACTIVITY = sys.argv[1:3]


def own(request: web.Request) -> None:
    """Refuse what does not come from the gateway, as the real one does."""
    if request.headers.get("X-App-Secret") != SECRET:
        raise web.HTTPForbidden


async def proof(request: web.Request) -> web.Response:
    text = hmac.new(SECRET.encode(), request.match_info["challenge"].encode(), "sha256").hexdigest()
    return web.Response(text=text)


async def page(request: web.Request) -> web.Response:
    """Return what has arrived, with cookies and headers that say something about the whole host."""
    own(request)
    body = {"path": request.raw_path, "method": request.method, "headers": dict(request.headers),
            "body": len(await request.read()), "pid": os.getpid()}  # fmt: skip
    response = web.json_response(body)
    response.headers.add("Set-Cookie", "_xsrf=2|abc; Path=/")
    response.headers.add("Set-Cookie", "sessionid=planted; Domain=127.0.0.1; Path=/")
    response.headers["Clear-Site-Data"] = '"*"'
    return response


async def download(request: web.Request) -> web.Response:
    own(request)
    name = request.match_info["name"]
    return web.Response(body=name.encode(), headers={"Content-Disposition": f'attachment; filename="{len(name)}"'})


async def files(request: web.Request) -> web.Response:
    """Return the files of the home and their texts, and the variables of the run."""
    own(request)
    home, found = Path(os.environ["HOME"]), {}
    for folder, _folders, names in os.walk(home, followlinks=True):
        for name in names:
            found[str((Path(folder) / name).relative_to(home))] = (Path(folder) / name).read_text(errors="replace")
    return web.json_response({"files": found, "variables": dict(os.environ)})


async def write(request: web.Request) -> web.Response:
    """Write the body to a path below the home; with `activity` as what the platform reads of the workspace's use."""
    own(request)
    name = request.match_info["name"]
    path = Path(ACTIVITY) if name == "activity" else Path(os.environ["HOME"], name)
    try:
        path.write_bytes(await request.read())
    except OSError as problem:
        return web.json_response({"problem": str(problem)}, status=409)
    return web.json_response({})


async def channel(request: web.Request) -> web.WebSocketResponse:
    own(request)
    link = web.WebSocketResponse()
    await link.prepare(request)
    links[link] = request.headers["X-Workspace-Login"]
    async for message in link:
        if message.type == WSMsgType.TEXT:
            await link.send_str(message.data.upper())
    links.pop(link)
    return link


async def ssh(request: web.Request) -> web.WebSocketResponse:
    """Connect a client to the real SSH server, as ssh_link.py does."""
    own(request)
    link = web.WebSocketResponse()
    await link.prepare(request)
    links[link] = request.headers["X-Workspace-Login"]
    ours, theirs = socket.socketpair()
    program = Path(__file__).with_name("sshd.py")
    with theirs:
        server = await asyncio.create_subprocess_exec(sys.executable, program, Path(ACTIVITY).with_name("key"),
                                                      stdin=theirs)  # fmt: skip
    reader, writer = await asyncio.open_connection(sock=ours)

    async def back() -> None:
        while data := await reader.read(1 << 16):
            await link.send_bytes(data)
        await link.close()

    returning = asyncio.create_task(back())
    async for message in link:
        writer.write(message.data)
        await writer.drain()
    writer.close()
    returning.cancel()
    links.pop(link)
    await server.wait()
    return link


links: dict[web.WebSocketResponse, str] = {}


async def logins(request: web.Request) -> web.Response:
    """Return or close the websockets of log-ins, as the real one does."""
    own(request)
    if request.method == "GET":
        return web.json_response(sorted(set(links.values())))
    ended = await request.json()
    for link in [link for link, login in links.items() if login in ended]:
        await link.close(code=1008, message=b"logged out")
    return web.json_response({})


async def end(request: web.Request) -> web.Response:
    own(request)
    os._exit(7)


def main() -> None:
    furnish(Path(os.environ["HOME"]), dict(os.environ))
    os.chdir(os.environ["HOME"])
    print(json.dumps({"base": BASE}), flush=True)
    app = web.Application(client_max_size=1 << 30)
    app.add_routes([web.get("/-proof/{challenge}", proof), web.get(f"{BASE}ws", channel)])
    app.add_routes([web.get(f"{BASE}-ssh", ssh)])
    app.add_routes([web.get("/-logins", logins), web.post("/-logins", logins)])
    app.add_routes([web.get(f"{BASE}files/{{name:.*}}", download), web.get(f"{BASE}home", files)])
    app.add_routes([web.put(f"{BASE}write/{{name:.+}}", write), web.post(f"{BASE}end", end)])
    app.add_routes([web.route("*", f"{BASE}{{rest:.*}}", page)])
    web.run_app(app, sock=socket.socket(fileno=3), print=None, handle_signals=True)


if __name__ == "__main__":
    main()
