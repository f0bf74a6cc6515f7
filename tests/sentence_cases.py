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
"Moore [...] compared the two kinds of ladders [...]" (Hill 12).
Leave a space before the dots and then add the stop . . . .|The next one follows.
I did not ... well, what I say...hear . . . what I want, the point is . . . I did not know.
One more custom that was weaker . . . was that of joining words. . . .|The custom did not end. . . .
She has $30.50.|It is in her purse.
Look under N°. 2041.115.|There it lies.
1.) Milk and bread|2.) Eggs and flour
1.) Milk.|2.) Eggs.
• 9. Milk and bread|• 10. Eggs and flour
⁃9. Milk and bread|⁃10. Eggs and flour
a. Milk and bread|b. Eggs and flour|c. Rice
The man claims that with a simple life, “the laws will seem less hard. . . .”
Hello World.|My name is Tom.
The U.S. Senate met on Jan. 5, 2010.|It sat.
He was born on Oct. 3rd in St. Louis, Mo. and died there.
See Sec. 4.2 and para. 3(a).|Then go on.
He said no.|I said yes.
My answer is No.|His is yes.
Smith et al. (2010) found it.|Others did not.
Smith et al. found it.|Others did not.
Is that Mr. T.?|Yes.
The answer is "no."|She left.
The answer is “no.”|She left.
(This is in brackets.)|This is not.
This (see p. 5.) is odd.
I have a dog (Fido).|He barks.
Really?!|Yes!!|OK...|Fine.
Mr. and Mrs. J. R. Smith Jr. came at 8:30 a.m. on Monday.|We ate.
We use C++, Node.js, and .NET.|They use Go.
He lives at 10 Main St. in Troy, N.Y.|She does not.
The J. Paul Getty Museum is in L.A.|It is big.
Go to http://a.org/b?c=d.|Now.
I work for IBM Corp. in Armonk.
“Stop!”|“Why?”|“Because.”
What is $5.00?|It is money.
Version 2.0 is out.|Get it.
She asked "Why?" and left.
In the end, she asked "Why?"|Nobody knew.
Prof. Dr. Hill, M.D., Ph.D., spoke.|We slept.
It happened in the 4th century B.C. in Greece.
Rome fell in 476 A.D.|Then came others.
Washington, D.C. is the capital.|It is hot.
He met Gen. Lee, Sen. Hall, and Rep. Cook.|They talked.
It’s 5 ft. 3 in. tall.|I measured.
It was 5 p.m.|Tom left.
“Go!” I cried.|“Now!”
“I thought...” Tom said.|He left.
'J. Smith is here.' he said.
―Well? Stephen said.|―Yes.
See Jer. 31:15 and Isa. 4.|Then stop.
He is 6 ft.|He left.
One more rep.|Then he stopped.
Turn to the rt.|The house is there.
It was a col.|She knew.
That is so in gen.|The rest is not.
It weighs 5 mt.|The rest is less.
Look on the gov.|The end.
It is a sure card.|Get the box.
I asked the dame.|Mrs. Hall knew.
We saw mr. Brown and capt. Hill there.
Six ft. Brown fences stood there.
This afternoon Sir Rich. Stayner came.|We went to Matt. Wren.
I met Will. Howe and Robt. Maddox there.|They left.
It is a letter to Will.|He read it.
“No,” said Will.|“Come here.”
plain words here.|more words here.|yes.
what is this?|it is a house.|oh!|we live there.
he said no.|then he left in 1999.|it was late.
they saw apples, etc. and left at 5 p.m. on monday.|it was old.|we know.
apples, pears, etc. and left at 5 p.m. on monday.
see vol. ii. of the work
see vol. ii. of the work.|it is good.
good god! and his own son.
good god! and his own son
yahoo! is fun.
this is an abr. of it
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
Die Feier ist am 24. Dezember um 18 Uhr.|Alle kommen.
Das Spiel am 13.6.2010 war gut.|Wir gewannen.
Siehe Abb. 2 und Tab. 3 auf S. 17 ff. im Anhang.
Nach Art. 5 Abs. 3 GG ist das frei.|Das gilt.
Er wurde 1. Sieger.|Sie wurde 2. Siegerin.
Prof. Dr. med. Klaus Meier, geb. 1950, wohnt hier.
Das ist u. a. in Berlin so.|In Bonn nicht.
Was ist das?|Es ist ein Test!
Sie sagte: „Ich komme.“|Dann ging sie.
„Ich komme nicht“, sagte sie.|„Warum?“
Die Fa. Müller GmbH & Co. KG ist groß.|Sie wächst.
Im Jahr 44 v. Chr. wurde Cäsar ermordet.|Rom bebte.
Das kostet 1.000.000 Euro.|Zu viel!
Bitte bis Mo., den 3. März antworten.|Danke.
(Das ist wahr.)|Das nicht.
1. Erstens das.|2. Zweitens jenes.
Der 2. Weltkrieg endete 1945.|Danach begann der Aufbau.
Am 1. und 2. Mai ist frei.
Mit freundlichen Grüßen i. A. Hans Groß
"""
BY_LANGUAGE["fr"] = """
M. Dupont est arrivé.|Il est tard.
Où est Mme Petit ?|Elle dort !
« Bonjour ! » dit-elle.|« Entrez. »
Voir p. 12, fig. 3, etc.|Le reste suit.
Il y a des pommes, des poires, etc. dans le panier.
L’art. 5 de la loi est clair.|Lisez-le.
Elle a 3,5 millions d’euros.|C’est beaucoup.
J.-C. Dupont et M. Hugo sont là.|Ils parlent.
Il est né en 50 av. J.-C. à Rome.|Il y vécut.
« Venez ! » cria-t-elle.|Personne ne vint.
Elle a dit : « Je pars. »|Puis elle est partie.
Le prof. Martin, cf. p. 5, le dit.|C’est vrai.
Il dit non.|Elle dit oui.
C’est-à-dire non !|Oui ?|Non…|Bon.
A-t-il raison ?|Peut-être... mais non.
"""
BY_LANGUAGE["es"] = """
El Sr. López llegó.|¿Quién es?|¡Es él!
Llegó a las 5 p. m. y se fue.|Nadie lo vio.
Vive en EE. UU. desde 1990.|Trabaja allí.
—¡Hola! —dijo Ana.|—¿Cómo estás?
Véase la pág. 4 del vol. II.|Ahí está.
El presidente (del P. N.) habló.|Nadie oyó.
¡Hola!|¿Qué tal?|Bien.
El Dr. Ruiz vive en la Av. Sol n.º 5.|Es rico.
Cuesta 1.000,50 €.|Es caro.
—¿Vienes? —preguntó Ana.|—No.
Dijo: «Me voy.»|Y se fue.
Los EE.UU. son grandes.|México también.
Nació en el s. V a. C. en Atenas.|Murió joven.
"""
BY_LANGUAGE["it"] = """
Il Sig. Rossi è qui.|La Dott.ssa Bianchi no.
Vedi pag. 3, fig. 2.|È chiaro.
«Vieni?» chiese Anna.|«Sì.»
Comprò pane, latte, ecc.|Poi tornò a casa.
Il dott. Neri abita in via Po n. 5.|È medico.
Disse: «Vengo.»|Poi uscì.
Nel IV sec. a.C. Roma era piccola.|Poi crebbe.
"""
BY_LANGUAGE["pt"] = """
O Sr. Silva chegou.|A Dra. Costa saiu.
Veja a pág. 5, art. 2.|Está claro.
— Vamos! — disse ele.|— Já?
O prof. Dias mora na Av. Central, n.º 5.|É médico.
Ela disse: “Vou.”|E foi.
"""
BY_LANGUAGE["nl"] = """
Dhr. Jansen woont in Den Haag.|Hij is arts.
Neem fruit mee, bijv. appels.|Dat is gezond.
Het kost ca. 5 euro, enz.|Meer weet ik niet.
De heer J. van den Berg is hier.|Hij wacht.
Prof. dr. De Vries woont in 's-Gravenhage.|Hij leest.
Dat is o.a. in Utrecht zo.|Elders niet.
“Kom!” riep hij.|“Nu!”
's Avonds is het koud.|'s Morgens ook.
Het is 5 jan. 2010.|Het sneeuwt.
"""
BY_LANGUAGE["pl"] = """
Prof. Nowak i dr Kowal mieszkają przy ul. Długiej.|To niedaleko.
Kup chleb, mleko itd.|Potem wróć.
Zob. s. 5 i rys. 2.|To jasne.
W 1990 r. Polska była inna.
„Dlaczego?” – zapytał Jan.|„Bo tak.”
To jest m.in. w Polsce.|Tak jest.
Mieszka w XX w. w Krakowie.|Stare miasto.
"""
BY_LANGUAGE["ru"] = """
Он родился в 1990 г. в Москве.|Это большой город.
А. С. Пушкин и Л. Н. Толстой — писатели.|Все их знают.
«Куда ты?» — спросил он.|«Домой».
— Привет! — сказал он.|— Как дела?
Купи хлеб, молоко и т. д.|Потом иди домой.
См. рис. 3 на стр. 5.|Там всё ясно.
В 2010 г. Иванов уехал.|Он вернулся.
Это было в XIX в. в России.|Царь правил.
Он сказал: «Я иду».|И ушёл.
Он сказал: «Я иду.»|И ушёл.
Цена 5 тыс. руб. за штуку.|Дорого!
Г-н Смирнов, т. е. мой сосед, дома.|Он спит.
Он живёт в г. Москве на ул. Ленина, д. 5, кв. 7.|Там тепло.
Что?|Где?!|Когда...|Не знаю.
Вода — H2O.|Она мокрая.
Пришли Иванов И. И. и Петров П. П.|Они сели.
На с. 5 т. 2 есть карта.|Смотри.
"""
BY_LANGUAGE["uk"] = """
Він живе на вул. Франка.|Там тихо.
І. Я. Франко був письменником.|Його знають усі.
— Добрий день! — сказала вона.|— Вітаю.
У 1990 р. Київ був іншим.|Він ріс.
"""
BY_LANGUAGE["bg"] = """
Той живее на ул. Раковски.|Там е тихо.
Роден е през 1950 г. в София.|Беше зима.
Проф. Иванов и д-р Петров са тук.|Те чакат.
Той е роден на 13.12.1950 г. в гр. Русе.|Живее там.
„Защо?“ – попита тя.|„Така.“
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
„Proč?“ zeptal se Jan.|„Tak.“
"""
BY_LANGUAGE["sk"] = """
Narodil sa 5. mája v Nitre.|Bola streda.
MUDr. Kováč býva na ul. SNP.|Je doma.
Kúp chlieb, mlieko atď.|Potom príď.
„Prečo?“ spýtal sa Ján.|„Tak.“
Firma ABC s. r. o. sídli v Nitre.|Je veľká.
"""
BY_LANGUAGE["da"] = """
Han kom den 5. maj.|Det var koldt.
Hr. Hansen bor i f.eks. København.|Han er læge.
Køb mælk, brød osv.|Så går vi.
Mødet er kl. 5 den 3. april.|Kom nu!
»Kom!« sagde han.|»Nu.«
"""
BY_LANGUAGE["sv"] = """
Dr. Berg bor i Lund.|Hon är läkare.
Köp t.ex. mjölk och bröd.|Sedan går vi.
”Kom hit!” sade han.|”Nu.”
Han är född den 3 jan. 1950 i Lund.|Där bor han.
"""
BY_LANGUAGE["fi"] = """
Hän tuli 5. toukokuuta.|Satoi.
”Mitä nyt?” hän kysyi.|”Ei mitään.”
Osta maitoa, leipää jne.|Sitten lähdetään.
Hän syntyi 3. tammikuuta 1950.|Satoi.
"""
BY_LANGUAGE["el"] = """
Τι κάνεις;|Καλά είμαι.
Ο κ. Παππάς ήρθε.|Η κα. Νίκου έφυγε.
Αγόρασε ψωμί, γάλα κ.λπ.|Μετά γύρισε.
Γεννήθηκε το 50 π.Χ. στη Ρώμη.|Έζησε εκεί.
«Γιατί;» ρώτησε.|«Έτσι.»
"""
BY_LANGUAGE["tr"] = """
Prof. Dr. Ayşe Kaya geldi.|Herkes sevindi.
Ekmek, süt vb.|Sonra eve gel.
Bu 3. Bölüm çok uzun.|Okudun mu?
Saat 5'te geldi.|Yağmur yağıyordu.
“Neden?” diye sordu.|“Hiç.”
"""
BY_LANGUAGE["hu"] = """
Dr. Kiss május 5. napján jött.|Esett az eső.
Vegyél tejet, kenyeret stb.|Aztán gyere haza.
Hol vagy?|Itt!
„Miért?” – kérdezte Anna.|„Csak.”
"""
BY_LANGUAGE["ro"] = """
Dl. Popescu stă pe str. Lungă.|E aproape.
Cumpără pâine, lapte etc.|Apoi vino acasă.
Vezi pag. 3, fig. 2.|E clar.
„De ce?” întrebă Ana.|„Așa.”
"""
BY_LANGUAGE["ar"] = """
قال د. محمد إنه سيأتي.|ثم ذهب.
هل أنت هنا؟|نعم!
يسكن م. أحمد في القاهرة.|هي مدينة كبيرة.
قال: «سآتي.»|ثم ذهب.
ولد عام 1950 م. في القاهرة.|عاش هناك.
"""
BY_LANGUAGE["fa"] = """
آقای دکتر آمد.|او کجا بود؟|نمی‌دانم.
او ساعت ۵ آمد.|باران می‌بارید.
م. امید شاعر بود.|همه او را می‌شناسند.
او گفت: «می‌آیم.»|سپس رفت.
"""
BY_LANGUAGE["ur"] = """
وہ گھر گیا۔|کیا تم آؤ گے؟|ہاں۔
ڈاکٹر صاحب آئے۔|سب خوش ہوئے۔
ایم۔ اے۔ پاس ہے۔|وہ استاد ہے۔
اس نے پوچھا: ”کیوں؟“|کسی نے جواب نہیں دیا۔
"""
BY_LANGUAGE["hi"] = """
डॉ. शर्मा आए।|सब खुश हुए।
क्या तुम आओगे?|हाँ!
ए. पी. जे. कलाम राष्ट्रपति थे।|वे वैज्ञानिक भी थे।
उसने पूछा, “क्या हुआ?”|किसी ने उत्तर नहीं दिया।
"""
BY_LANGUAGE["mr"] = """
डॉ. पाटील आले.|सर्व आनंदी झाले.
तू येशील का?|हो!
पं. भीमसेन जोशी गात होते.|लोक ऐकत होते.
त्याने विचारले, "काय झाले?"|कोणी बोलले नाही.
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
ቤት ሄደ::|ዝናብ ነበር::
"""
BY_LANGUAGE["hy"] = """
Նա եկավ։|Անձրև էր։
Դու եկա՞ր։|Այո։
Պրոֆ. Պետրոսյանը եկավ։|Բոլորը ուրախացան։
Նա եկավ:|Անձրև էր:
«Ինչո՞ւ», հարցրեց նա։|Ոչ ոք չպատասխանեց։
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
«Сәлем!» - деді ол.|«Қайырлы таң!»
А.Құнанбаев ақын болды.|Оны бәрі біледі.
"""
BY_LANGUAGE["ja"] = """
これは本です。|あれは何ですか？|ペンです！
「行くぞ！」と彼は言った。|雨が降っていた。
彼は「もう帰る。明日また来る。」と言った。|そして帰った。
割合は３．１４％です。|以上。
「はい。」|「いいえ。」
田中さんは「なぜ？」と聞いた。|誰も答えなかった。
すごい！！|本当ですか？！|はい。
Dr. Smithが来た。|みんな喜んだ。
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
他问：“为什么？”|没有人回答。
“走吧。”他说，“天黑了。”|他们走了。
张先生(42岁)来了。|他很高兴！
他说：“我走了。你呢？”
"""
BY_LANGUAGE["ko"] = """
그는 갔다.|비가 왔다.
“정말?” 그녀가 물었다.|그는 웃었다.
네.|알겠습니다.
김 박사는 3.5km를 걸었다.|비가 왔다.
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
“Tại sao?” anh hỏi.|“Không biết.”
"""
BY_LANGUAGE["id"] = """
Dr. Budi tinggal di Jl. Sudirman.|Rumahnya besar.
Dia membeli roti, susu, dll.|Kemudian dia pulang.
“Pergi!” katanya.|“Sekarang.”
Ia lahir tgl. 3 Jan. 1950 di Jakarta.|Ia tinggal di sana.
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
