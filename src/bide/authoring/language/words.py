"""The words of the language in seven languages: one row per keyword, one column per language (L5).

A form is a word, or several words with one space between them. Within one language, and among the keywords that can
stand at the same place, no two have the same form.
"""

from __future__ import annotations

from functools import cache
from typing import Final, NamedTuple

LANGUAGES: Final = ("en", "es", "fr", "de", "ja", "zh", "ko")

ROWS: Final = """
# sections, steps and their parts: what a line begins with
machine       | máquina          | machine          | Maschine         | マシン       | 机器     | 머신
language      | idioma           | langue           | Sprache          | 言語         | 语言     | 언어
version       | versión          | version          | Version          | バージョン   | 版本     | 버전
queue         | cola             | file             | Warteschlange    | キュー       | 队列     | 대기열
priority      | prioridad        | priorité         | Priorität        | 優先度       | 优先级   | 우선순위
retries       | reintentos       | reprises         | Wiederholungen   | 再試行回数   | 重试次数 | 재시도횟수
redact        | oculta           | masque           | verbirgt         | 伏せる       | 隐藏     | 숨기다
accepts       | acepta           | accepte          | akzeptiert       | 受け取る     | 接受     | 받다
responds with | responde con     | répond avec      | antwortet mit    | 応答する     | 回应     | 응답하다
implements    | implementa       | implémente       | implementiert    | 実装する     | 实现     | 구현하다
flows         | flujos           | déroulements     | Abläufe          | フロー一覧   | 流程列表 | 흐름 목록
flow          | flujo            | déroulement      | Ablauf           | フロー       | 流程     | 흐름
subscribes    | se suscribe a    | écoute           | abonniert        | 購読する     | 订阅     | 구독하다
compute       | calcula          | calcule          | berechnet        | 計算する     | 计算     | 계산하다
action        | acción           | action           | Aktion           | アクション   | 动作     | 동작
ask           | pregunta         | demande          | fragt            | 尋ねる       | 询问     | 묻다
decide        | decide           | décide           | entscheidet      | 判断する     | 决定     | 결정하다
when          | cuando           | quand            | wenn             | 場合         | 当       | 경우
otherwise     | si no            | sinon            | sonst            | それ以外     | 否则     | 아니면
emit          | emite            | émet             | sendet           | 発行する     | 发出     | 발행하다
launch        | lanza            | lance            | startet          | 起動する     | 启动     | 시작하다
wait for      | espera           | attend           | wartet auf       | 待つ         | 等待     | 기다리다
run           | ejecuta          | exécute          | durchläuft       | 実行する     | 执行     | 실행하다
for each      | para cada        | pour chaque      | für jedes        | 繰り返す     | 遍历     | 반복하다
on failure    | si falla         | en cas de panne  | bei Fehler       | 失敗時       | 失败时   | 실패하면
with task     | con la tarea     | avec la tâche    | mit der Aufgabe  | 課題         | 任务     | 과제
returns       | devuelve         | renvoie          | liefert          | 返す         | 返回     | 돌려주다
assuming      | suponiendo       | en supposant     | angenommen       | 仮定         | 假设     | 가정하다
schema        | esquema          | schéma           | Schema           | スキーマ     | 模式     | 스키마
# inside of a line
http          | http             | http             | http             | http         | http     | http
call          | llamada          | appel            | Aufruf           | 呼び出し     | 调用     | 호출
using         | usando           | en utilisant     | mittels          | 使用         | 使用     | 사용
from          | de               | auprès de        | von              | から         | 来自     | 에게서
in            | en               | dans             | in               | 対象         | 在       | 대상
as            | como             | comme            | als              | として       | 为       | 로서
is required   | es obligatorio   | est requis       | ist erforderlich | 必須         | 必填     | 필수
required      | obligatorio      | requis           | erforderlich     | 必要         | 必需     | 필요
defaults to   | vale por defecto | vaut par défaut  | ist sonst        | 既定値は     | 默认为   | 기본값은
default       | por defecto      | par défaut       | Vorgabe          | 既定         | 默认     | 기본값
# types of fields
text          | texto            | texte            | Text             | テキスト     | 文本     | 텍스트
number        | número           | nombre           | Zahl             | 数値         | 数字     | 숫자
boolean       | booleano         | booléen          | Wahrheitswert    | 真偽値       | 布尔     | 참거짓
list          | lista            | liste            | Liste            | リスト       | 列表     | 목록
map           | mapa             | dictionnaire     | Objekt           | マップ       | 映射     | 맵
date          | fecha            | date             | Datum            | 日付         | 日期     | 날짜
# what a step is told, before a colon
method        | método           | méthode          | Methode          | メソッド     | 方法     | 메서드
url           | url              | url              | url              | url          | url      | url
headers       | cabeceras        | entêtes          | Kopfzeilen       | ヘッダー     | 请求头   | 헤더
body          | cuerpo           | corps            | Rumpf            | 本文         | 正文     | 본문
timeout       | plazo            | délai            | Frist            | 期限         | 时限     | 제한시간
on_timeout    | al_vencer        | si_expiré        | nach_Fristablauf | 期限切れ時   | 超时后   | 시간초과시
retry         | reintentos       | reprises         | Versuche         | 再試行       | 重试     | 재시도
event         | evento           | événement        | Ereignis         | イベント     | 事件     | 이벤트
match         | coincide         | filtre           | Bedingung        | 一致         | 匹配     | 일치
callback      | retrollamada     | rappel           | Rückruf          | コールバック | 回调     | 콜백
channel       | canal            | canal            | Kanal            | チャネル     | 渠道     | 채널
title         | título           | titre            | Titel            | タイトル     | 标题     | 제목
description   | descripción      | description      | Beschreibung     | 説明         | 说明     | 설명
assignee      | asignado_a       | assigné_à        | zugewiesen_an    | 担当者       | 负责人   | 담당자
group         | grupo            | groupe           | Gruppe           | グループ     | 组       | 그룹
reminders     | recordatorios    | relances         | Erinnerungen     | リマインダー | 提醒     | 알림
escalate      | escalamiento     | escalade         | Eskalation       | 上申         | 升级     | 상신
metadata      | metadatos        | métadonnées      | Metadaten        | メタデータ   | 元数据   | 메타데이터
quorum        | quórum           | quorum           | Quorum           | 定足数       | 法定人数 | 정족수
veto          | veto             | véto             | Veto             | 拒否権       | 否决     | 거부권
decides       | campo_decisivo   | champ_décisif    | zählendes_Feld   | 決定項目     | 决定字段 | 결정항목
data          | datos            | données          | Daten            | データ       | 数据     | 데이터
collect       | reúne            | rassemble        | sammelt          | 集める       | 收集     | 모으다
# inside of expressions
input         | entrada          | entrée           | Eingabe          | 入力         | 输入     | 입력
steps         | pasos            | étapes           | Schritte         | ステップ     | 步骤     | 단계
secrets       | secretos         | secrets          | Geheimnisse      | 秘密         | 密钥     | 비밀
error         | error            | erreur           | Fehler           | エラー       | 错误     | 오류
and           | y                | et               | und              | かつ         | 且       | 그리고
or            | o                | ou               | oder             | または       | 或       | 또는
not           | no               | non              | nicht            | ではない     | 非       | 아님
true          | verdadero        | vrai             | wahr             | 真           | 真       | 참
false         | falso            | faux             | falsch           | 偽           | 假       | 거짓
null          | nulo             | nul              | leer             | 無           | 空       | 없음
forever       | indefinidamente  | indéfiniment     | unbegrenzt       | 無期限       | 无限期   | 무기한
"""

TABLE: Final = {
    cells[0]: dict(zip(LANGUAGES, cells, strict=True))
    for row in ROWS.splitlines()
    if row and not row.startswith("#")
    for cells in [tuple(cell.strip() for cell in row.split("|"))]
}
"""Every keyword under its English form, which is its name in this package, with its form in each language."""

# Which keywords can stand where.
FILE: Final = ("machine", "language")
HEADING: Final = ("version", "queue", "priority", "retries", "redact")
SECTIONS: Final = (*HEADING, "accepts", "responds with", "subscribes", "implements", "on failure", "flows")
STEPS: Final = (
    "compute", "action", "ask", "decide", "emit", "launch", "wait for", "run", "for each", "on failure", "flows"
)  # fmt: skip
BRANCHES: Final = ("when", "otherwise")
PARTS: Final = ("with task", "returns", "assuming", "schema", "on failure")
MODIFIERS: Final = ("is required", "required", "defaults to", "default")
TYPES: Final = ("text", "number", "boolean", "list", "map", "date")
HTTP_KEYS: Final = ("method", "url", "headers", "body", "timeout", "retry")
CALL_KEYS: Final = ("machine", "timeout", "retry")
LAUNCH_KEYS: Final = ("machine",)
MODEL_KEYS: Final = ("using", "timeout", "retry")
WAIT_KEYS: Final = (
    "event", "match", "callback", "timeout", "on_timeout", "channel", "title", "description", "assignee", "group",
    "reminders", "escalate", "metadata", "quorum", "veto", "decides"
)  # fmt: skip
EMIT_KEYS: Final = ("event", "data", "channel")
USER_KEYS: Final = frozenset({*CALL_KEYS, *EMIT_KEYS})  # names of arguments stand beside these
ROOTS: Final = ("input", "steps", "secrets", "error")
CONSTANTS: Final = {"true": True, "false": False, "null": None, "forever": "forever"}
EXPRESSION: Final = (*ROOTS, *CONSTANTS, "and", "or", "not")
NAME_LIKE: Final = frozenset({*TYPES, *HTTP_KEYS, *CALL_KEYS, *WAIT_KEYS, *EMIT_KEYS, *HEADING, "collect"}) - {
    "machine"
}

KEYS: Final = tuple(dict.fromkeys((*HTTP_KEYS, *CALL_KEYS, *MODEL_KEYS, *WAIT_KEYS, *EMIT_KEYS)))  # before a colon

# Where a keyword belongs, for those who put it elsewhere; what is in «…» is said in the language of the file.
HOMES: Final = (
    (("machine",), "begins a machine, at the left edge of the file"),
    (("flow",), "begins a flow; flows stand under `«flows»`"),
    (("accepts", "responds with", "subscribes", "implements", "flows"), "stands right under `«machine» NAME`"),
    (tuple(keyword for keyword in STEPS if keyword not in ("on failure", "flows")),
     "is a step; steps stand under `«implements»`, in a flow or in a branch"),
    (BRANCHES, "is a branch; it stands under `«decide» NAME`, indented"),
    (PARTS, "is part of a step; it stands under the step, indented"),
)  # fmt: skip
HOMES_BEFORE_A_COLON: Final = (
    (KEYS, "is said of a step; it stands under the step, indented"),
    (HEADING, "is said of a machine; it stands right under `«machine» NAME`"),
)


class Phrase(NamedTuple):
    words: tuple[str, ...]
    keyword: str


@cache
def phrases(language: str, keywords: tuple[str, ...]) -> dict[str, tuple[Phrase, ...]]:
    """The forms of these keywords by their first word, the longest first."""
    found: dict[str, list[Phrase]] = {}
    for keyword in keywords:
        words = tuple(TABLE[keyword][language].split(" "))
        found.setdefault(words[0], []).append(Phrase(words, keyword))
    return {first: tuple(sorted(those, key=lambda phrase: -len(phrase.words))) for first, those in found.items()}


@cache
def reserved(language: str) -> frozenset[str]:
    """Single words that a user's name is told apart from by backticks: the words that shape a file, not field names."""
    forms = {row[language] for keyword, row in TABLE.items() if keyword not in NAME_LIKE}
    return frozenset(form for form in forms if " " not in form)


@cache
def forms(language: str, keywords: frozenset[str] | tuple[str, ...]) -> frozenset[str]:
    return frozenset(TABLE[keyword][language] for keyword in keywords)
