"""Hard cases of sentence boundaries, written for this project: a bar stands where a sentence ends."""

from __future__ import annotations

BY_LANGUAGE = {}
BY_LANGUAGE["en"] = """
Hello there.|How do you do?
Is it raining?|It is!|Good.
What?!|You did it!!|Really??|Yes.
Mr. Brown met Mrs. Green and Dr. White.|They talked.
My cousin is Anna B. Clark.|She is a nurse.
Please see p. 12 and pp. 30-31 first.
Turn to Fig. 3.|It shows the pump.
Did Tom and co. come to dinner?
We sold it to Baker, Dale & Co. in May.
I wrote to Baker & Co.|They never answered.
She founded Acme Inc.|It went bankrupt.
She works for Acme Inc. Chairman Lee hired her.
From here you can see Mt. Hood.
St. Mary’s Church is on 3rd st. near the bridge.
Is this John Hill Jr.’s house?
They left the U.S.A. last summer.
I grew up in the U.S.|Where are you from?
He works for the U.S. Senate in Washington.
He has been in the U.S. for ten years.
U. S. News reports it.|So does the Post.
At 6 a.m. Mrs. Hall got up.|She came home at 7 p.m.|Mr. Hall was late.
It costs $20.50 a head.
He bent down, 'You are late.' he said.
He bent down, "You are late." he said.
He bent down, "You are late."|She blushed.
“You are late.” he said.|“Am I?”
“Go!” he cried.|“Now!”
“Go!” Tom cried.|They went.
“Are you sure?” Mr. Hill asked.|She was.
The file is at www.example.com/a.html.|Read it.
Write to jane.doe@example.com.|She knows.
He works at Yahoo! in the sales team.
You and I.|Have you met Peter I. Young?
It is rich in vitamin C.|The juice is sour.
See Vol. II. of his works.
I never said that....|He lied.
I really ... well, that is ... you know.
It was so … and then it was not.
... And then there was light.
The text goes on. . . .|And it ends there.
“Wait...” he said.|“I’m coming.”
Wait... I’m coming.
’Tis true.|’Twas night.
Oh, good God! and his own brother!
1. The first thing.|2. The second thing.|3. The third thing.
1. The first thing|2. The second thing|3. The third thing
1) Milk|2) Eggs|3) Bread
a. Milk|b. Eggs|c. Bread
• Milk|• Eggs|• Bread
"""

_WITHOUT_SPACES = ("zh", "ja", "my", "km", "bo")


def find_space(language: str) -> str:
    """What stands between sentences."""
    return "" if language in _WITHOUT_SPACES else " "
