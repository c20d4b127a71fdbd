#!/usr/bin/env python3
"""The routes that the suite api measures, as one would write them with FastAPI: pydantic models, a table of futures in
memory, an asyncio event each. Requires an interpreter with fastapi, uvicorn, uvloop, httptools, and tinker for its
protobuf messages:

    fastapi_server.py PORT WORKERS

Operations of a model wait for their turn (seq_id) as in the protocol and are then done at once, because there is no
engine. Several worker processes do not share the table; then only routes without state are meaningful."""
import asyncio
import contextlib
import resource
import sys
import uuid

import uvicorn
from fastapi import FastAPI, Header, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

with contextlib.suppress(ImportError):
    import zstandard
    from tinker.proto import tinker_public_pb2 as pb

KEY, POLL_SECONDS = "tml-bench-key", 30
app = FastAPI(openapi_url=None)


class CreateSession(BaseModel):
    tags: list[str]
    user_metadata: dict[str, str] | None = None
    sdk_version: str
    type: str


class SessionHeartbeat(BaseModel):
    session_id: str
    type: str


class LoraConfig(BaseModel):
    rank: int


class CreateModel(BaseModel):
    session_id: str
    model_seq_id: int
    base_model: str
    lora_config: LoraConfig
    type: str


class AdamParams(BaseModel):
    learning_rate: float = 1e-4
    beta1: float = 0.9
    beta2: float = 0.95
    eps: float = 1e-12
    weight_decay: float = 0.0
    grad_clip_norm: float = 0.0


class OptimStep(BaseModel):
    adam_params: AdamParams
    model_id: str
    seq_id: int
    type: str


class UnloadModel(BaseModel):
    model_id: str
    type: str


class RetrieveFuture(BaseModel):
    request_id: str
    allow_metadata_only: bool = False


class Submitted(BaseModel):
    request_id: str
    model_id: str | None = None


class Future:
    def __init__(self):
        self.done, self.result = asyncio.Event(), None

    def finish(self, result):
        self.result = result
        self.done.set()


class Model:
    def __init__(self):
        self.next_seq, self.waiting, self.known = 1, {}, {}


sessions, models, futures = set(), {}, {}


def authorize(key):
    if key != KEY:
        raise HTTPException(401, "unknown API key")


def model_of(model_id):
    if model_id not in models:
        raise HTTPException(404, "unknown model_id")
    return models[model_id]


def new_future():
    request = str(uuid.uuid4())
    futures[request] = Future()
    return request, futures[request]


def submit(model, seq_id, result):
    if seq_id in model.known:
        return Submitted(request_id=model.known[seq_id])
    request, future = new_future()
    model.known[seq_id] = request
    model.waiting[seq_id] = (future, result)
    while model.next_seq in model.waiting:
        ready, value = model.waiting.pop(model.next_seq)
        model.next_seq += 1
        ready.finish(value)
    return Submitted(request_id=request)


@app.get("/api/v1/healthz")
async def healthz():
    return {"status": "ok", "ready": True}


@app.post("/api/v1/create_session")
async def create_session(body: CreateSession, x_api_key: str = Header()):
    authorize(x_api_key)
    session = str(uuid.uuid4())
    sessions.add(session)
    return {"session_id": session, "type": "create_session"}


@app.post("/api/v1/session_heartbeat")
async def session_heartbeat(body: SessionHeartbeat, x_api_key: str = Header()):
    authorize(x_api_key)
    return {"type": "session_heartbeat"}


@app.post("/api/v1/create_model")
async def create_model(body: CreateModel, x_api_key: str = Header()) -> Submitted:
    authorize(x_api_key)
    model = f"{body.session_id}:train:{body.model_seq_id}"
    models.setdefault(model, Model())
    request, future = new_future()
    future.finish({"model_id": model})
    return Submitted(request_id=request, model_id=model)


@app.post("/api/v1/optim_step")
async def optim_step(body: OptimStep, x_api_key: str = Header()) -> Submitted:
    authorize(x_api_key)
    return submit(model_of(body.model_id), body.seq_id, {"metrics": {}})


@app.post("/api/v1/forward_backward")
async def forward_backward(request: Request, x_api_key: str = Header()) -> Submitted:
    authorize(x_api_key)
    raw = await request.body()
    if request.headers.get("content-encoding") == "zstd":
        raw = zstandard.decompress(raw, max_output_size=64 << 20)
    message = pb.ForwardBackwardRequest.FromString(raw)
    return submit(model_of(message.model_id), message.seq_id, {"message": message})


@app.post("/api/v1/unload_model")
async def unload_model(body: UnloadModel, x_api_key: str = Header()) -> Submitted:
    authorize(x_api_key)
    model = models.pop(body.model_id, None)
    if model is None:
        raise HTTPException(404, "unknown model_id")
    for future, _ in model.waiting.values():
        future.finish({"error": "unknown model_id: it was unloaded before this operation's turn", "category": "user"})
    request, future = new_future()
    future.finish({"model_id": body.model_id})
    return Submitted(request_id=request)


@app.post("/api/v1/retrieve_future")
async def retrieve_future(body: RetrieveFuture, x_api_key: str = Header()):
    authorize(x_api_key)
    future = futures.get(body.request_id)
    if future is None:
        raise HTTPException(404, "unknown request_id")
    try:
        await asyncio.wait_for(future.done.wait(), POLL_SECONDS)
    except TimeoutError:
        return JSONResponse({"type": "try_again", "request_id": body.request_id, "queue_state": "active"}, 408)
    return JSONResponse(future.result) if "message" not in future.result else Response(status_code=204)


if __name__ == "__main__":
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    uvicorn.run("fastapi_server:app", host="127.0.0.1", port=int(sys.argv[1]), workers=int(sys.argv[2]), loop="uvloop",
                http="httptools", log_level="warning", access_log=False, backlog=16384, timeout_keep_alive=300)
