"""A sandbox provider in Python, without the Go SDK.

It shows the protocol between broker and plugin (docs/plugin-protocol.md). What it runs
are local processes under bubblewrap: they have no network and see /usr and a directory
of their own, but nothing limits their memory, their number or their disk. The provider
in Go, in ../bubblewrap-provider, does more and says more about that.

Read it from the end: main() is the handshake, Provider the contract.
"""
import asyncio
import contextlib
import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time

os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "false"  # we start programs, we do not fork ourselves
import grpc  # noqa: E402
import grpc.aio  # noqa: E402
from sandboxbroker.provider.v1 import provider_pb2 as pb  # noqa: E402
import status_pb2  # noqa: E402

MAX_MESSAGE = 32 << 20  # bytes; the broker's limit too
CHUNK = 64 << 10


# Errors. Every status that is not OK carries one ErrorDetail: its code reaches the agent.

GRPC_CODES = {  # the nearest of gRPC's own, for tools that know nothing of ours
    "SB000": grpc.StatusCode.INTERNAL,
    "SB002": grpc.StatusCode.INVALID_ARGUMENT,
    "SB004": grpc.StatusCode.FAILED_PRECONDITION,  # not UNAVAILABLE: that means a dead plugin
    "SB008": grpc.StatusCode.RESOURCE_EXHAUSTED,
    "SB009": grpc.StatusCode.FAILED_PRECONDITION,
    "SB010": grpc.StatusCode.INVALID_ARGUMENT,
    "SB013": grpc.StatusCode.NOT_FOUND,
    "SB015": grpc.StatusCode.UNIMPLEMENTED,
}


class Refusal(Exception):
    def __init__(self, code, message, field="", capability="", no_effect=False):
        super().__init__(message)
        self.detail = pb.ErrorDetail(code=code, message=message[:4096], field=field, capability=capability, no_effect=no_effect)

    async def send(self, context):
        status = GRPC_CODES[self.detail.code]
        envelope = status_pb2.Status(code=status.value[0], message=self.detail.message)
        envelope.details.add().Pack(self.detail)
        context.set_trailing_metadata((("grpc-status-details-bin", envelope.SerializeToString()),))
        await context.abort(status, self.detail.message)


def coded(error):
    """Any error as a Refusal. What nobody foresaw is a bug, and is logged as one."""
    if isinstance(error, Refusal):
        return error
    log("error", f"{type(error).__name__}: {error}")
    return Refusal("SB000", f"the provider has a bug: {type(error).__name__}")


def log(level, message):
    """A line of JSON on standard error becomes an entry of the broker's log."""
    print(json.dumps({"@level": level, "@message": message}), file=sys.stderr, flush=True)


# What runs in the new process. Python's own contract (main, arguments, the result) is
# kept here, in the process of the code: the result comes back by a descriptor of its
# own, so that nothing that is printed can pass for one.

PYTHON = r'''
import ast, asyncio, inspect, json, os, sys, types

with open(sys.argv[1]) as f:
    request = json.load(f)
channel = int(sys.argv[2])
os.set_inheritable(channel, False)
code, arguments = request["code"], request["arguments"]
sys.argv = ["main.py"]
try:
    os.mkdir("artifacts")  # as code expects it
except OSError:
    pass


def names(node):
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def expects_call(tree):
    """Whether top-level code defines main, does not use it and has no guard."""
    defined = False
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == "main":
            defined = True
        elif "main" in names(node) or isinstance(node, ast.If) and "__name__" in names(node.test):
            return False
    return defined


async def wait(value):
    return await value


tree = ast.parse(code, "main.py")
module = types.ModuleType("__main__" if arguments is None else "main")
sys.modules[module.__name__] = module
exec(compile(tree, "main.py", "exec"), module.__dict__)
if arguments is not None or expects_call(tree):
    if not callable(module.__dict__.get("main")):
        raise NameError("arguments were given, so the code must define a function main")
    value = module.main(**(arguments or {}))
    if inspect.isawaitable(value):
        value = asyncio.run(wait(value))
    with os.fdopen(channel, "wb") as f:
        f.write(json.dumps(value, allow_nan=False).encode())
'''


def program(request, channel):
    """The files that the sandbox needs for an execution, and the command in it."""
    if request.language == "bash" and not request.HasField("arguments"):
        return {"/run/main.sh": request.code}, ["/usr/bin/bash", "/run/main.sh"]
    if request.language == "bash":
        raise Refusal("SB010", "bash has no main to call", "arguments")
    if request.language != "python":
        raise Refusal("SB010", f"there is no interpreter of {request.language!r}", "language")
    arguments = json.loads(request.arguments) if request.HasField("arguments") else None
    text = json.dumps({"code": request.code, "arguments": arguments})
    return {"/run/request": text}, ["/usr/bin/python3", "-c", PYTHON, "/run/request", str(channel)]


def memory_file(text):
    """A descriptor from which bwrap can read a text."""
    fd = os.memfd_create("text")
    os.write(fd, text.encode())  # a memory file takes everything at once
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def start(files, command, workspace, env, channel):
    """Start a command in a sandbox of its own, which ends with it."""
    opened = []

    def content(text):
        opened.append(memory_file(text))
        return str(opened[-1])

    options = [
        "--unshare-all", "--unshare-user", "--uid", "1000", "--gid", "1000", "--cap-drop", "ALL", "--disable-userns",
        "--new-session", "--die-with-parent", "--clearenv",
        "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
        "--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
        "--bind", workspace, "/workspace", "--chdir", "/workspace",
    ]
    for path, text in files.items():
        options += ["--file", content(text), path]
    for name, value in env.items():
        options += ["--setenv", name, value]
    if any("\0" in option for option in options):
        raise Refusal("SB010", "must not have NUL characters", "env")  # it would end the option
    try:
        # By a descriptor: everybody on the machine can read the command lines of processes.
        arguments = content("".join(option + "\0" for option in options))
        return await asyncio.create_subprocess_exec(
            "bwrap", "--args", arguments, "--", *command, env={"PATH": os.environ.get("PATH", "")},
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[channel, *opened])
    finally:
        for fd in opened:
            os.close(fd)


async def read(reader, limit, take):
    """Pass on what comes, up to a limit, and read the rest all the same: a full pipe
    would stop the code. Says whether there was more."""
    truncated = False
    while chunk := await reader.read(CHUNK):
        truncated = truncated or len(chunk) > limit
        if limit > 0:
            await take(chunk[:limit])
        limit -= min(limit, len(chunk))
    return truncated


def kill(process):
    with contextlib.suppress(ProcessLookupError):  # it has ended
        process.kill()


async def reader_of(descriptor):
    """A stream of what comes from a descriptor; who has it closes the transport."""
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb"))
    return reader, transport


async def execute(request, workspace, env, send):
    """Run code and send its output; returns the result. Ends the code when cancelled."""
    result_end, channel = os.pipe()
    value_reader, pipe = await reader_of(result_end)
    try:
        try:
            began = time.monotonic()
            process = await start(*program(request, channel), workspace, env, channel)
        finally:
            os.close(channel)
        value = bytearray()

        async def keep(chunk):
            value.extend(chunk)

        # When the first process of the sandbox ends, or bwrap because we say so, all
        # others do. The pipes end when they have.
        ended = asyncio.gather(
            process.wait(),
            read(process.stdout, request.output_limit, lambda chunk: send(stdout=chunk)),
            read(process.stderr, request.output_limit, lambda chunk: send(stderr=chunk)),
            read(value_reader, request.output_limit, keep))
        try:
            _, late = await asyncio.wait([ended], timeout=request.timeout.ToTimedelta().total_seconds())
            if late:
                kill(process)
            code, *cut, too_large = await ended
        finally:
            ended.cancel()
            kill(process)
            await process.wait()
    finally:
        pipe.close()

    code = code if code >= 0 else 128 - code
    result = pb.ExecuteResult(status="succeeded" if code == 0 else "failed", exit_code=code, truncated=any(cut))
    result.duration.FromMicroseconds(int((time.monotonic() - began) * 1e6))
    if late:
        result.status, result.exit_code = "timeout", 137
    elif too_large:
        result.status, result.exit_code, result.detail = "failed", 1, "what main returned is larger than the output may be"
    elif code == 0 and value:
        result.result = bytes(value)
    return result


# The contract.

class Provider:
    """The seven calls of ProviderService, and Close. Instances end with the process."""

    def __init__(self):
        self.directory = None
        self.limit = 0
        self.instances = {}  # by ID: pb.Instance, environment, its running executions
        self.by_key = {}  # IDs

    async def Describe(self, request):
        field = pb.Field(name="max_instances", type="integer", description="How many instances there may be at once.", label="Instances")
        field.default.number_value, field.min = 100, 1
        languages = ["python", "bash"]
        return pb.DescribeResponse(
            name="python_example", version="1.0.0", summary="Local processes under bubblewrap, from Python.", languages=languages,
            templates=[pb.Template(name="default", languages=languages)], schema=[field],
            ephemeral=True)

    async def Configure(self, request):
        self.directory = os.path.join(request.state_dir, "instances")
        # What earlier processes left: their sandboxes died with them, and so did the instances.
        for left in [self.directory, *request.abandoned_dirs]:
            remove(left)
        os.makedirs(self.directory, 0o700)
        self.limit = check(request.settings)
        if shutil.which("bwrap") is None:
            raise Refusal("SB002", "there is no bwrap on this machine (Debian: apt install bubblewrap)")
        return pb.ConfigureResponse()

    async def Health(self, request):
        if shutil.which("bwrap") is None:
            return pb.HealthResponse(healthy=False, reason="there is no bwrap on this machine")
        return pb.HealthResponse(healthy=True)

    async def Create(self, request):
        if request.template != "default":
            raise Refusal("SB010", f"there is no template {request.template!r}", "template")
        there = self.by_key.get(request.idempotency_key)
        if there:
            return pb.CreateResponse(instance=self.instances[there].record)
        if len(self.instances) >= self.limit:
            raise Refusal("SB008", f"there are {self.limit} instances already")
        instance = Instance(self.directory, request)
        self.instances[instance.record.id] = instance
        if request.idempotency_key:
            self.by_key[request.idempotency_key] = instance.record.id
        return pb.CreateResponse(instance=instance.record)

    async def Execute(self, request, send):
        instance = self.instances.get(request.instance_id)
        if instance is None:
            raise Refusal("SB013", "there is no such instance", no_effect=True)
        if request.context_id:
            raise Refusal("SB015", "this provider has no contexts", capability="contexts")
        return await instance.execute(request, send)

    async def Destroy(self, request):
        instance = self.instances.pop(request.instance_id, None)
        if instance is not None:
            self.by_key = {key: there for key, there in self.by_key.items() if there != request.instance_id}
            await instance.end()
        return pb.DestroyResponse()

    async def List(self, request):
        return pb.ListResponse(instances=[instance.record for instance in self.instances.values()])

    async def Close(self, request):
        await asyncio.gather(*(instance.end() for instance in self.instances.values()))
        return pb.CloseResponse()


def check(settings):
    """The value of max_instances. The broker has checked it against the schema, but anybody
    can start a plugin."""
    settings = dict(settings)
    value = settings.pop("max_instances", 100.0)
    if settings:
        raise Refusal("SB002", "there is no such setting", sorted(settings)[0])
    if not isinstance(value, float) or not value.is_integer() or value < 1:
        raise Refusal("SB002", "must be a whole number of at least 1", "max_instances")
    return int(value)


class Instance:
    """A directory, and the executions that run there now."""

    def __init__(self, directory, request):
        self.record = pb.Instance(id=secrets.token_hex(16), template=request.template, labels=request.labels)
        self.record.created_at.GetCurrentTime()
        self.env = {"PATH": "/usr/local/bin:/usr/bin", "HOME": "/workspace", "LANG": "C.UTF-8", **request.env}
        self.workspace = os.path.join(directory, self.record.id)
        self.executions = set()
        os.mkdir(self.workspace, 0o700)

    async def execute(self, request, send):
        task = asyncio.create_task(execute(request, self.workspace, {**self.env, **request.env}, send))
        self.executions.add(task)
        try:
            await asyncio.wait([task])
            if task.cancelled():
                raise Refusal("SB009", "the instance was destroyed while the code ran")
            return task.result()
        finally:  # when the call was cancelled the task still runs
            task.cancel()
            await asyncio.wait([task])
            self.executions.discard(task)

    async def end(self):
        for task in self.executions:
            task.cancel()
        if self.executions:
            await asyncio.wait(self.executions)
        remove(self.workspace)


def remove(directory):
    """Remove a directory, also where code took itself the right to do that."""
    for path, directories, _ in os.walk(directory):
        for name in directories:
            below = os.path.join(path, name)
            if not os.path.islink(below):
                os.chmod(below, 0o700)
    shutil.rmtree(directory, ignore_errors=True)


# The protocol.

def unary(call):
    async def handle(request, context):
        try:
            return await call(request)
        except Exception as error:
            await coded(error).send(context)
    return handle


def streaming(call):
    async def handle(request, context):
        one_at_a_time = asyncio.Lock()

        async def send(**part):
            async with one_at_a_time:
                await context.write(pb.ExecuteResponse(**part))
        try:
            await send(result=await call(request, send))
        except Exception as error:
            await coded(error).send(context)
    return handle


def register(server, provider):
    """Serve the methods of ProviderService that the provider has. All others, those of other
    services too, answer UNIMPLEMENTED by themselves; no capability that is described needs
    them."""
    service = pb.DESCRIPTOR.services_by_name["ProviderService"]
    handlers = {}
    for method in service.methods:
        call, kind, wrap = getattr(provider, method.name, None), grpc.unary_unary_rpc_method_handler, unary
        if call is None:
            continue
        if method.name == "Execute":
            kind, wrap = grpc.unary_stream_rpc_method_handler, streaming
        handlers[method.name] = kind(
            wrap(call), getattr(pb, method.input_type.name).FromString, getattr(pb, method.output_type.name).SerializeToString)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(service.full_name, handlers)])


async def main():
    if os.environ.get("SANDBOX_BROKER_PLUGIN") != "sandboxbroker.provider.v1":
        sys.exit("This is a plugin: put it into the plugin_dir of a sandbox broker.")
    if "1" not in os.environ.get("PLUGIN_PROTOCOL_VERSIONS", "").split(","):
        sys.exit("This plugin speaks version 1 of the protocol, and the broker does not.")
    socket = os.path.join(os.environ["PLUGIN_UNIX_SOCKET_DIR"], "provider")
    for name in [name for name in os.environ if name.startswith("PLUGIN_")]:
        del os.environ[name]  # nothing that is started from here shall pose as a plugin
    for number in (signal.SIGINT, signal.SIGTERM):  # the broker gets them too, and sees to the rest
        asyncio.get_running_loop().add_signal_handler(number, lambda: None)

    provider = Provider()
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", MAX_MESSAGE), ("grpc.max_send_message_length", MAX_MESSAGE)])
    register(server, provider)
    server.add_insecure_port("unix:" + socket)
    await server.start()
    print(f"1|1|unix|{socket}|grpc", flush=True)

    # The broker holds the other end of standard input, and never writes. Its end is that of
    # the broker, by kill -9 too.
    stdin, _ = await reader_of(0)
    while await stdin.read(CHUNK):
        pass
    await provider.Close(None)
    await server.stop(grace=None)


if __name__ == "__main__":
    asyncio.run(main())
