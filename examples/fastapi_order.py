"""A FastAPI application that writes an order and starts its run in one transaction of its own SQLAlchemy session.

It needs PostgreSQL, with the tables that `bide migrate` makes:
BIDE_STORE=postgresql://user@host/database python examples/fastapi_order.py
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import httpx
from fastapi import FastAPI, HTTPException
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

import bide

STORE = os.environ.get("BIDE_STORE", "")
app = bide.App("shop", store=STORE or "memory://", public_url="https://shop.example/bide")


@app.workflow("order")
async def order(step: bide.Step, number: int) -> str:
    return await step.run("ship", lambda: f"order {number} is shipped")


def shop() -> FastAPI:
    database = create_async_engine(STORE.partition("?")[0].replace("postgresql://", "postgresql+asyncpg://"))

    @asynccontextmanager
    async def lifespan(outer: FastAPI) -> AsyncGenerator[None, None]:
        """Yours around ours: the engine works from the first request to the last."""
        async with app.lifespan(outer):
            yield
        await database.dispose()

    api = FastAPI(lifespan=lifespan)
    api.mount("/bide", app.asgi())  # the HTTP API of bide, below a path of this application

    @api.post("/orders/{number}")
    async def place(number: int, stock: int = 1) -> dict[str, str]:
        async with AsyncSession(database) as session, session.begin():
            await session.execute(text("INSERT INTO example_orders VALUES (:number)"), {"number": number})
            run = await app.client().start("order", number, connection=session)
            if not stock:
                raise HTTPException(409, "no stock")  # rolls back: neither the order nor its run is there
        return {"run": run.id}

    return api


async def until_admitted(run_id: str) -> None:
    """What a transaction left is admitted right after its commit; until then nobody knows the run."""
    while True:
        try:
            await app.client().get(run_id)
            return
        except bide.RunNotFound:
            await asyncio.sleep(0.02)


async def main() -> None:
    if not STORE.startswith("postgresql://"):
        print("this example needs PostgreSQL: set BIDE_STORE=postgresql://user@host/database and run `bide migrate`")
        return
    api = shop()
    tables = create_async_engine(STORE.partition("?")[0].replace("postgresql://", "postgresql+asyncpg://"))
    async with tables.begin() as connection:
        await connection.execute(text("DROP TABLE IF EXISTS example_orders"))
        await connection.execute(text("CREATE TABLE example_orders (number integer PRIMARY KEY)"))
    async with (
        api.router.lifespan_context(api),
        httpx.AsyncClient(transport=httpx.ASGITransport(api), base_url="https://shop.example") as http,
    ):
        placed = (await http.post("/orders/1001")).json()
        await until_admitted(placed["run"])
        print(await app.client().result(placed["run"], timeout="30s"))
        print("without stock:", (await http.post("/orders/1002?stock=0")).status_code)
        print("mounted:", (await http.get("/bide/healthz")).status_code)
        print("runs:", len(await app.client().runs()))
    async with tables.begin() as connection:
        print("orders:", [row.number for row in await connection.execute(text("SELECT number FROM example_orders"))])
        await connection.execute(text("DROP TABLE example_orders"))
    await tables.dispose()


if __name__ == "__main__":
    asyncio.run(main())
