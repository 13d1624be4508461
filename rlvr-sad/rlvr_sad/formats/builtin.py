"""The formats that rlvr-sad brings."""

from __future__ import annotations

from rlvr_sad.formats.spec import FormatSpec

FORMATS = (
    FormatSpec(
        name="toolbench",
        target="rlvr_sad.formats.toolbench:ToolBench",
        summary="ToolBench answers: the chosen branch of a search tree",
        order=100,
    ),
    FormatSpec(
        name="swe-agent",
        target="rlvr_sad.formats.swe_agent:SweAgent",
        summary="SWE-agent .traj files and demonstrations (fences, <command>, tool calls)",
        order=110,
    ),
    FormatSpec(
        name="openhands",
        target="rlvr_sad.formats.openhands:OpenHands",
        summary="OpenHands event streams and evaluation outputs",
        order=120,
    ),
    FormatSpec(
        name="chat",
        target="rlvr_sad.formats.chat:Chat",
        summary="Messages: OpenAI tools, ShareGPT, typed and multi-modal parts, verifiers, "
        "Thought/Action chats, mini-swe-agent",
        order=130,
    ),
    FormatSpec(
        name="alpaca",
        target="rlvr_sad.formats.alpaca:Alpaca",
        summary="Instruction and output; the output may be a transcript",
        order=140,
    ),
    FormatSpec(
        name="transcript",
        target="rlvr_sad.formats.transcript:Transcript",
        summary="One text: ReAct, ALFWorld, tags, Hermes, Harmony, `role: text`, thought and fence",
        order=150,
    ),
)
