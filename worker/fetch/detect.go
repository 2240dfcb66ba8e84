package fetch

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/encoding"
)

const (
	// sampleBytes is what detection decodes in each charset that comes into
	// question: enough for the frequencies of letters. It costs about a
	// millisecond, of the few pages that declare nothing.
	sampleBytes = 2 << 10
	// sureShare is the share of what is expected of a text in the right charset that
	// a charset must reach. Wrong ones reach a third.
	sureShare = 0.55
	// A charset must be ahead of the default by this much, and one of the Latin
	// script by so many letters: they share the most, and a page whose only sign is
	// the "³" of a cubic metre is not Polish.
	lead        = 0.1
	leadLetters = 2
)

// script is how the letters outside of ASCII stand in a text.
type script byte

const (
	latin    script = iota // among ASCII letters, seldom three in a row
	nonLatin               // next to each other, in words of their own
)

// candidate is a charset that undeclared pages are in. Frequent has the characters
// that make up the given share of its texts, leaving ASCII aside.
type candidate struct {
	label    string
	script   script
	frequent string
	share    float64
}

const (
	russian = "оеаинтсрвлкм"
	kana    = "のにはをたがでてとしれさるいなこすもかられくまよりきんっそだけどせつうあおえわアイウエオカキクケコサシス" +
		"セソタチツテトナニネノハヒフヘホマミムメモラリルレロワンガギグゲゴザジズゼゾダデドバビブベボパピプペポッャュョー、。日本"
	hangul = "이다는에의을가로고하지기사시아대리자도인은서스한어나해일를정있수부으과전보그제원구상주라공장조" +
		"것여연성오우유들면안동신만게"
	simplified = "的一是不了在人有我他这中大来上个国和说们为子到时地出就要会也你对生能而那得于下自之年过发后作里用道行" +
		"所然家种事成方多经么去法学如都同现当没动面起看定天分还进好小部其些主样理心本前开但因只从想实日军者意无力它与长把机" +
		"十民第公此已工使情明性知全三又关点正业外将两高间由问很最重并物手应战向头文体政美相见被利什二等产或新己制身果加西斯" +
		"月话合回特代内信表化老给世位次度门任常先海通教儿原东声提立及比员解水名真论处走义各入几口认条平系气题活尔更别打女" +
		"网页首站登录搜索下载版权，。、"
	traditional = "的一是不了在人有我他這中大來上個國和說們為子到時地出就要會也你對生能而那得於下自之年過發後作裡用道行" +
		"所然家種事成方多經麼去法學如都同現當沒動面起看定天分還進好小部其些主樣理心本前開但因只從想實日軍者意無力它與長把機" +
		"十民第公此已工使情明性知全三又關點正業外將兩高間由問很最重並物手應戰向頭文體政美相見被利什二等產或新己制身果加西斯" +
		"月話合回特代內信表化老給世位次度門任常先海通教兒原東聲提立及比員解水名真論處走義各入幾口認條平系氣題活爾更別打女" +
		"網頁首站登錄搜索下載版權，。、"
)

// candidates in the order in which they are preferred when they do equally well.
// The first one is the default, which is never detected but has to be beaten.
var candidates = []candidate{
	{defaultName, latin, "äöüßéèàçêâîôùëïñóáíúìòãõåøæœðþýÄÖÜÉÀÇÑÅØ«»“”‘’–—…•·©®°€£¡¿\u00a0", 1},
	{"windows-1250", latin, "ąćęłńóśźżáčďéěíňřšťúůýžőűăâîşţđäöüßŁŚŻŹČŘŠŽÁÉŐŰ„”“’–—…•·©®°€§\u00a0", 1},
	{"shift_jis", nonLatin, kana, 0.45},
	{"euc-jp", nonLatin, kana, 0.45},
	{"euc-kr", nonLatin, hangul, 0.45},
	{"gbk", nonLatin, simplified, 0.55},
	{"big5", nonLatin, traditional, 0.55},
	{"windows-1251", nonLatin, russian, 0.78},
	{"koi8-u", nonLatin, russian, 0.78}, // KOI8-R and four more letters
	{"ibm866", nonLatin, russian, 0.78},
	{"iso-8859-5", nonLatin, russian, 0.78},
	{"windows-1253", nonLatin, "αοιετνσηρκςυάίόέ", 0.83},
	{"windows-1255", nonLatin, "יוהלאתרמבשנ", 0.78},
	{"windows-1256", nonLatin, "اليمنرتوبةعدسه", 0.85},
	{"windows-874", nonLatin, "านรอกเงมยลวทส่้ีิั", 0.78},
}

// frequencies has the frequent characters of each candidate.
var frequencies = func() []map[rune]bool {
	sets := make([]map[rune]bool, len(candidates))
	for i, c := range candidates {
		sets[i] = make(map[rune]bool, utf8.RuneCountInString(c.frequent))
		for _, r := range c.frequent {
			sets[i][r] = true
		}
	}
	return sets
}()

// detect guesses the charset of a page that declares none and is no UTF-8, from how
// often the letters of a language occur in it. The name is "" when nothing is
// likelier than the default.
//
// Written here because the library that colly brings (saintfish/chardet) starts a
// goroutine for each charset, whose panic nobody can recover, and takes pages with
// much markup for Latin text.
func detect(body []byte) (encoding.Encoding, string) {
	text := sample(body)
	best, bestShare := "", 0.0
	base, baseLetters := candidates[0].score(text, frequencies[0])
	for i, c := range candidates[1:] {
		share, letters := c.score(text, frequencies[i+1])
		if share < sureShare || share < base+lead || c.script == latin && letters < baseLetters+leadLetters {
			continue
		}
		if share > bestShare {
			best, bestShare = c.label, share
		}
	}
	return lookup(best)
}

// sample takes from a page the bytes that are no ASCII, and each byte behind one: it
// may be the second of a character. What stood between becomes one space.
func sample(body []byte) []byte {
	b := make([]byte, 0, sampleBytes)
	high := false
	for _, c := range body {
		if len(b) == sampleBytes {
			break // perhaps within a character: one error of a thousand
		}
		behind := high
		if high = c >= utf8.RuneSelf; high || behind {
			b = append(b, c)
		} else if len(b) > 0 && b[len(b)-1] != ' ' {
			b = append(b, ' ')
		}
	}
	return b
}

// score returns how well a text reads in the charset, 1 for what is expected of a
// text in it and 0 for none at all, and how many frequent letters it has.
func (c candidate) score(text []byte, frequent map[rune]bool) (share float64, letters int) {
	e, _ := lookup(c.label)
	if e == nil {
		return 0, 0
	}
	decoded, err := decoderOf(e).String(string(text))
	if err != nil {
		return 0, 0
	}
	total, hits, errors := 0, 0, 0
	seen := map[rune]bool{}
	prev := rune(' ')
	for decoded != "" {
		r, n := utf8.DecodeRuneInString(decoded)
		decoded = decoded[n:]
		if r >= utf8.RuneSelf {
			total++
			next, _ := utf8.DecodeRuneInString(decoded)
			switch {
			case r == utf8.RuneError, unicode.IsControl(r), unicode.Is(unicode.Co, r):
				errors++
			case frequent[r] && c.script.stands(isForeign(prev), isForeign(next)):
				hits++
				seen[r] = true
			}
		}
		prev = r
	}
	// A page is damaged here and there; the wrong charset fails everywhere.
	if total == 0 || errors*50 > total {
		return 0, 0
	}
	return float64(hits) / float64(total) / c.share, len(seen)
}

// stands reports whether a letter may stand between what is before and behind it.
func (s script) stands(foreignBefore, foreignBehind bool) bool {
	if s == latin {
		return !foreignBefore || !foreignBehind
	}
	return foreignBefore || foreignBehind
}

// isForeign reports whether r is part of a word outside of ASCII.
func isForeign(r rune) bool {
	return r >= utf8.RuneSelf && r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsMark(r) ||
		strings.ContainsRune("ー、。，", r))
}
