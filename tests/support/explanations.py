"""Explanations of one scheduled pod and of one scheduled gang, for the tests that transfer them."""

from bayplan.explanation.documents import Explanation, GangExplanation, GangVerdict, MemberCounts, Verdict

EXPLANATION = Explanation(
    namespace="shop",
    name="web",
    scheduler_name="spread",
    verdict=Verdict.PLACED,
    headline="pod shop/web is scheduled to node n",
)
GANG = GangExplanation(
    namespace="shop",
    name="train",
    api="bayplan.dev",
    verdict=GangVerdict.PLACED,
    headline="gang shop/train is scheduled",
    members=MemberCounts(2, 0, 0, 2, 0, 0, 2, 0),
)
