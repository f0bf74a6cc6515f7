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
BY_LANGUAGE["de"] = """
Er kam am 5. Januar an.|Es schneite.
Das war im 19. Jahrhundert üblich.
Dr. Anna Groß wohnt z. B. in Köln.|Dort regnet es.
Man braucht Mehl, Zucker usw.|Der Rest ist einfach.
„Kommst du?“, fragte er.|„Ja.“
„Geh!“ rief sie.|Er ging.
»Wohin?« fragte er.|»Nach Hause.«
Das sind ca. 3 Mio. Euro, d. h. sehr viel.
Siehe Nr. 7 auf S. 12.|Dort steht es.
Ludwig XIV. König von Frankreich war er.
Das Jahr 1999.|Danach kam 2000.
"""
BY_LANGUAGE["fr"] = """
M. Dupont est arrivé.|Il est tard.
Où est Mme Petit ?|Elle dort !
« Bonjour ! » dit-elle.|« Entrez. »
Voir p. 12, fig. 3, etc.|Le reste suit.
Il y a des pommes, des poires, etc. dans le panier.
L’art. 5 de la loi est clair.|Lisez-le.
"""
BY_LANGUAGE["es"] = """
El Sr. López llegó.|¿Quién es?|¡Es él!
Llegó a las 5 p. m. y se fue.|Nadie lo vio.
Vive en EE. UU. desde 1990.|Trabaja allí.
—¡Hola! —dijo Ana.|—¿Cómo estás?
Véase la pág. 4 del vol. II.|Ahí está.
"""
BY_LANGUAGE["it"] = """
Il Sig. Rossi è qui.|La Dott.ssa Bianchi no.
Vedi pag. 3, fig. 2.|È chiaro.
«Vieni?» chiese Anna.|«Sì.»
Comprò pane, latte, ecc.|Poi tornò a casa.
"""
BY_LANGUAGE["pt"] = """
O Sr. Silva chegou.|A Dra. Costa saiu.
Veja a pág. 5, art. 2.|Está claro.
— Vamos! — disse ele.|— Já?
"""
BY_LANGUAGE["nl"] = """
Dhr. Jansen woont in Den Haag.|Hij is arts.
Neem fruit mee, bijv. appels.|Dat is gezond.
Het kost ca. 5 euro, enz.|Meer weet ik niet.
"""
BY_LANGUAGE["pl"] = """
Prof. Nowak i dr Kowal mieszkają przy ul. Długiej.|To niedaleko.
Kup chleb, mleko itd.|Potem wróć.
Zob. s. 5 i rys. 2.|To jasne.
W 1990 r. Polska była inna.
"""
BY_LANGUAGE["ru"] = """
Он родился в 1990 г. в Москве.|Это большой город.
А. С. Пушкин и Л. Н. Толстой — писатели.|Все их знают.
«Куда ты?» — спросил он.|«Домой».
— Привет! — сказал он.|— Как дела?
Купи хлеб, молоко и т. д.|Потом иди домой.
См. рис. 3 на стр. 5.|Там всё ясно.
"""
BY_LANGUAGE["uk"] = """
Він живе на вул. Франка.|Там тихо.
І. Я. Франко був письменником.|Його знають усі.
— Добрий день! — сказала вона.|— Вітаю.
"""
BY_LANGUAGE["bg"] = """
Той живее на ул. Раковски.|Там е тихо.
Роден е през 1950 г. в София.|Беше зима.
Проф. Иванов и д-р Петров са тук.|Те чакат.
"""
BY_LANGUAGE["sr"] = """
Проф. Петровић живи у ул. Милоша.|То је далеко.
Дошао је 5. маја.|Било је топло.
Kupi hleb, mleko itd.|Onda dođi kući.
"""
BY_LANGUAGE["cs"] = """
Přišel 5. května ve 3 hod. ráno.|Pršelo.
Ing. Novák a Mgr. Malá čekali.|Nikdo nepřišel.
Viz str. 5, obr. 2.|Je to jasné.
"""
BY_LANGUAGE["sk"] = """
Narodil sa 5. mája v Nitre.|Bola streda.
MUDr. Kováč býva na ul. SNP.|Je doma.
Kúp chlieb, mlieko atď.|Potom príď.
"""
BY_LANGUAGE["da"] = """
Han kom den 5. maj.|Det var koldt.
Hr. Hansen bor i f.eks. København.|Han er læge.
Køb mælk, brød osv.|Så går vi.
"""
BY_LANGUAGE["sv"] = """
Dr. Berg bor i Lund.|Hon är läkare.
Köp t.ex. mjölk och bröd.|Sedan går vi.
”Kom hit!” sade han.|”Nu.”
"""
BY_LANGUAGE["fi"] = """
Hän tuli 5. toukokuuta.|Satoi.
”Mitä nyt?” hän kysyi.|”Ei mitään.”
Osta maitoa, leipää jne.|Sitten lähdetään.
"""
BY_LANGUAGE["el"] = """
Τι κάνεις;|Καλά είμαι.
Ο κ. Παππάς ήρθε.|Η κα. Νίκου έφυγε.
Αγόρασε ψωμί, γάλα κ.λπ.|Μετά γύρισε.
"""
BY_LANGUAGE["tr"] = """
Prof. Dr. Ayşe Kaya geldi.|Herkes sevindi.
Ekmek, süt vb.|Sonra eve gel.
Bu 3. Bölüm çok uzun.|Okudun mu?
"""
BY_LANGUAGE["hu"] = """
Dr. Kiss május 5. napján jött.|Esett az eső.
Vegyél tejet, kenyeret stb.|Aztán gyere haza.
Hol vagy?|Itt!
"""
BY_LANGUAGE["ro"] = """
Dl. Popescu stă pe str. Lungă.|E aproape.
Cumpără pâine, lapte etc.|Apoi vino acasă.
Vezi pag. 3, fig. 2.|E clar.
"""
BY_LANGUAGE["ar"] = """
قال د. محمد إنه سيأتي.|ثم ذهب.
هل أنت هنا؟|نعم!
يسكن م. أحمد في القاهرة.|هي مدينة كبيرة.
"""
BY_LANGUAGE["fa"] = """
آقای دکتر آمد.|او کجا بود؟|نمی‌دانم.
او ساعت ۵ آمد.|باران می‌بارید.
م. امید شاعر بود.|همه او را می‌شناسند.
"""
BY_LANGUAGE["ur"] = """
وہ گھر گیا۔|کیا تم آؤ گے؟|ہاں۔
ڈاکٹر صاحب آئے۔|سب خوش ہوئے۔
ایم۔ اے۔ پاس ہے۔|وہ استاد ہے۔
"""
BY_LANGUAGE["hi"] = """
डॉ. शर्मा आए।|सब खुश हुए।
क्या तुम आओगे?|हाँ!
ए. पी. जे. कलाम राष्ट्रपति थे।|वे वैज्ञानिक भी थे।
"""
BY_LANGUAGE["mr"] = """
डॉ. पाटील आले.|सर्व आनंदी झाले.
तू येशील का?|हो!
पं. भीमसेन जोशी गात होते.|लोक ऐकत होते.
"""
BY_LANGUAGE["bn"] = """
ডা. রায় এলেন।|সবাই খুশি হলো।
তুমি কি আসবে?|হ্যাঁ!
সে বাড়ি গেল।|বৃষ্টি হচ্ছিল।
"""
BY_LANGUAGE["ta"] = """
டாக்டர். ராமன் வந்தார்.|அனைவரும் மகிழ்ந்தனர்.
நீ வருவாயா?|ஆம்!
எம். ஜி. ராமச்சந்திரன் நடிகர்.|அவர் முதல்வரும் ஆனார்.
"""
BY_LANGUAGE["am"] = """
ዶ/ር አበበ መጡ።|ሁሉም ተደሰቱ።
ትመጣለህ?|አዎ!
ቤት ሄደ፡፡|ዝናብ ነበር፡፡
እንዴት ነህ፧|ደህና ነኝ።
"""
BY_LANGUAGE["hy"] = """
Նա եկավ։|Անձրև էր։
Դու եկա՞ր։|Այո։
Պրոֆ. Պետրոսյանը եկավ։|Բոլորը ուրախացան։
Նա եկավ:|Անձրև էր:
"""
BY_LANGUAGE["ka"] = """
ის მოვიდა.|წვიმდა.
პროფ. გიორგაძე მოვიდა.|ყველას გაუხარდა.
მოხვალ?|კი!
ი. ჭავჭავაძე მწერალი იყო.|მას ყველა იცნობს.
"""
BY_LANGUAGE["kk"] = """
Ол 1990 ж. Алматыда туды.|Қыс еді.
Проф. Ахметов келді.|Бәрі қуанды.
Сен келесің бе?|Иә!
"""
BY_LANGUAGE["ja"] = """
これは本です。|あれは何ですか？|ペンです！
「行くぞ！」と彼は言った。|雨が降っていた。
彼は「もう帰る。明日また来る。」と言った。|そして帰った。
割合は３．１４％です。|以上。
「はい。」|「いいえ。」
"""
BY_LANGUAGE["zh"] = """
今天很冷。|你来吗？|来！
“真的吗？”她问。|他点头。
『嗯！』她点头。|大家笑了。
他说：“你好！我来了。”|然后他走了。
《你好！世界》是一本书。|他看了。
他走了。|（这是真的。）|她哭了。
我……我不知道。|你呢？
“你好。”|“再见。”
价格是3.5元。|很贵。
你好!|我很好.|再见!
"""
BY_LANGUAGE["ko"] = """
그는 갔다.|비가 왔다.
“정말?” 그녀가 물었다.|그는 웃었다.
네.|알겠습니다.
"""
BY_LANGUAGE["my"] = """
သူ သွားသည်။|မိုးရွာသည်။
နေကောင်းလား။|ကောင်းပါတယ်။
သင် လာမလား?|ဟုတ်ကဲ့။
"""
BY_LANGUAGE["km"] = """
គាត់បានទៅ។|ភ្លៀងធ្លាក់។
តើអ្នកមកទេ?|បាទ។
សួស្តី!|អរគុណ។
"""
BY_LANGUAGE["vi"] = """
TS. Nguyễn Văn An đã đến.|Mọi người vui mừng.
Bạn có đến không?|Có!
Anh ấy mua bánh, sữa, v.v.|Sau đó về nhà.
"""
BY_LANGUAGE["id"] = """
Dr. Budi tinggal di Jl. Sudirman.|Rumahnya besar.
Dia membeli roti, susu, dll.|Kemudian dia pulang.
“Pergi!” katanya.|“Sekarang.”
"""
BY_LANGUAGE["he"] = """
ד״ר כהן בא.|ירד גשם.
מה שלומך?|טוב!
א. ב. יהושע היה סופר.|כולם מכירים אותו.
"""
BY_LANGUAGE["th"] = """
ดร. สมชาย มาแล้ว
"""
BY_LANGUAGE["bo"] = """
བཀྲ་ཤིས་བདེ་ལེགས།|ཁྱེད་རང་སྐུ་གཟུགས་བདེ་པོ་ཡིན་པས།
"""
_WITHOUT_SPACES = ("zh", "ja", "my", "km")


def find_space(language: str) -> str:
    """What stands between sentences."""
    return "" if language in _WITHOUT_SPACES else " "
