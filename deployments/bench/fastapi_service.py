"""The protocol of Trawl's submissions in a small service that keeps all in memory: what bench measures Trawl against.

It stores nothing outside of its process and crawls nothing. /v1/jobs is written as FastAPI's documentation has it,
with a model of what comes in and one of what goes out; /plain/v1/jobs is the same without the second one, which costs
FastAPI much. (The file is not named fastapi.py, since it would then import itself.)

    BENCH_KEY=secret uvicorn --no-access-log fastapi_service:app
"""

import asyncio
import os
import secrets
import uuid
from datetime import datetime, timezone
from typing import Any, Dict, List, Optional

from fastapi import Depends, FastAPI, Header, HTTPException, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from pydantic import AnyHttpUrl, BaseModel, Field, constr
from typing_extensions import Literal

app = FastAPI()
bearer = HTTPBearer()
key = os.environ["BENCH_KEY"]
jobs = {}  # job by its id
submitted = {}  # id and input of a job by its Idempotency-Key
queue: "asyncio.Queue[str]" = asyncio.Queue()


class Spec(BaseModel):
    seed_url: AnyHttpUrl
    max_pages: int = Field(100, ge=1, le=1_000_000)
    max_depth: int = Field(5, ge=0, le=100)
    scope: Literal["prefix", "host", "domain", "any"] = "host"
    include: List[constr(min_length=1, max_length=512)] = Field([], max_items=100)
    exclude: List[constr(min_length=1, max_length=512)] = Field([], max_items=100)
    tags: List[constr(min_length=1, max_length=64)] = Field([], max_items=20)

    class Config:
        extra = "forbid"


class Job(BaseModel):
    job_id: str
    queue_task_id: str
    state: Literal["queued", "running", "completed", "failed", "cancelled"]
    stop_reason: Optional[str]
    error: Optional[str]
    total: int
    processed: int
    accepted: int
    failed: int
    queued: int
    active: int
    skipped: int
    cancelled: int
    records: int
    bytes: int
    created_at: datetime
    started_at: Optional[datetime]
    ended_at: Optional[datetime]
    spec: Dict[str, Any]
    tags: List[str]


async def authenticated(given: HTTPAuthorizationCredentials = Depends(bearer)) -> None:
    if not secrets.compare_digest(given.credentials.encode(), key.encode()):
        raise HTTPException(401, "The key is not known.")


def accepted(response: Response, job: dict, replayed: bool) -> dict:
    response.headers["Location"] = "/v1/jobs/" + job["job_id"]
    if replayed:
        response.headers["Idempotent-Replayed"] = "true"
    return job


@app.post("/v1/jobs", status_code=202, dependencies=[Depends(authenticated)], response_model=Job)
@app.post("/plain/v1/jobs", status_code=202, dependencies=[Depends(authenticated)])
async def submit(
    spec: Spec, response: Response, idempotency_key: Optional[str] = Header(None, min_length=1, max_length=255)
):
    given = {**spec.dict(exclude_unset=True), "seed_url": str(spec.seed_url)}
    if idempotency_key in submitted:
        first, same = submitted[idempotency_key]
        if same != given:
            raise HTTPException(409, "The Idempotency-Key names another job: " + first)
        return accepted(response, jobs[first], True)
    job_id = str(uuid.uuid4())
    jobs[job_id] = job = {
        "job_id": job_id,
        "queue_task_id": job_id,
        "state": "queued",
        "stop_reason": None,
        "error": None,
        "total": 1,
        "processed": 0,
        "accepted": 0,
        "failed": 0,
        "queued": 1,
        "active": 0,
        "skipped": 0,
        "cancelled": 0,
        "records": 0,
        "bytes": 0,
        "created_at": datetime.now(timezone.utc),
        "started_at": None,
        "ended_at": None,
        "spec": given,
        "tags": spec.tags,
    }
    if idempotency_key is not None:
        submitted[idempotency_key] = job_id, given
    await queue.put(job_id)
    return accepted(response, job, False)


@app.get("/v1/jobs/{job_id}", dependencies=[Depends(authenticated)], response_model=Job)
async def read(job_id: str):
    if job_id not in jobs:
        raise HTTPException(404, "There is no such job.")
    return jobs[job_id]


@app.get("/readyz")
async def ready():
    return {"queued": queue.qsize(), "jobs": len(jobs)}
