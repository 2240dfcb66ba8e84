package fetch

import (
	"strings"
	"testing"

	"golang.org/x/text/encoding"
)

// sentences are what undeclared pages say, by language.
var sentences = map[string]string{
	"english":     "The café’s résumé – “naïve”, 20 € and 5 °C",
	"french":      "Où êtes-vous né ? L’été dernier, à l’hôtel, nous avons mangé des crêpes au goût très léger. Ça va",
	"german":      "Die Bürger müssen für größere Häuser höhere Gebühren zahlen, schließlich wäre es sonst unmöglich",
	"spanish":     "El niño comió una piña mañana en España. ¿Qué será, según él? ¡Jamás volvió aquí",
	"portuguese":  "A situação não é fácil: as crianças estão à espera do pão e das maçãs de amanhã, porém têm razões",
	"swedish":     "Räksmörgås och öl är gott på sommaren när vi åker båt över sjön från Malmö",
	"polish":      "Zażółć gęślą jaźń. Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw",
	"czech":       "Příliš žluťoučký kůň úpěl ďábelské ódy. Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti",
	"one word":    "Informação",
	"accents":     "La société créée",
	"a unit":      "20 m³, 30 m³, 17 m³, 5 m², 2 µm ± 0,1",
	"russian":     "Все люди рождаются свободными и равными в своем достоинстве и правах.",
	"ukrainian":   "Всі люди народжуються вільними і рівними у своїй гідності та правах.",
	"greek":       "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα.",
	"hebrew":      "כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. כולם חוננו בתבונה ובמצפון",
	"arabic":      "يولد جميع الناس أحرارا متساوين في الكرامة والحقوق. وقد وهبوا عقلا وضميرا",
	"thai":        "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ต่างมีเหตุผลและมโนธรรม",
	"japanese":    "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。ニュースのページ",
	"korean":      "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 인간은 천부적으로 이성과 양심을 부여받았으며",
	"simplified":  "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。",
	"traditional": "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心，並應以兄弟關係的精神相對待。",
	"title":       "Привет, мир",
	"short title": "中文网页",
	"newspaper":   "朝日新聞のニュースサイト",
}

// markup puts a sentence where pages have them, between much ASCII.
func markup(text string) string {
	const filler = `<div class="teaser"><a href="/article?id=17">Read more</a></div>`
	return "<html><head><title>" + text + "</title></head><body>" + strings.Repeat(filler, 40) +
		"<p>" + text + "</p>" + strings.Repeat(filler, 40)
}

func encode(t *testing.T, label, text string) []byte {
	t.Helper()
	e, name := lookup(label)
	if name == "" {
		t.Fatalf("no charset %q", label)
	}
	b, err := encoding.ReplaceUnsupported(e.NewEncoder()).Bytes([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestDetect is the last step of CHR-08: the page declares nothing and is no UTF-8.
func TestDetect(t *testing.T) {
	t.Parallel()
	tests := []struct{ language, charset string }{
		{"english", defaultName},
		{"french", defaultName},
		{"german", defaultName},
		{"spanish", defaultName},
		{"portuguese", defaultName},
		{"swedish", defaultName},
		{"polish", "windows-1250"},
		{"czech", "windows-1250"},
		{"one word", defaultName},
		{"accents", defaultName},
		{"a unit", defaultName},
		{"russian", "windows-1251"},
		{"russian", "koi8-u"},
		{"russian", "ibm866"},
		{"russian", "iso-8859-5"},
		{"ukrainian", "windows-1251"},
		{"ukrainian", "koi8-u"},
		{"greek", "windows-1253"},
		{"hebrew", "windows-1255"},
		{"arabic", "windows-1256"},
		{"thai", "windows-874"},
		{"japanese", "shift_jis"},
		{"japanese", "euc-jp"},
		{"korean", "euc-kr"},
		{"simplified", "gbk"},
		{"traditional", "big5"},
		{"title", "windows-1251"},
		{"short title", "gbk"},
		{"newspaper", "shift_jis"},
		{"newspaper", "euc-jp"},
	}
	for _, tt := range tests {
		t.Run("CHR-08 "+tt.language+" in "+tt.charset, func(t *testing.T) {
			t.Parallel()
			text := sentences[tt.language]
			p := read(string(encode(t, tt.charset, markup(text))), "")
			want, from := tt.charset, CharsetDetected
			if want == defaultName {
				from = CharsetDefault
			}
			if p.charset != want || p.charsetFrom != from {
				t.Errorf("charset %q (%s), want %q (%s)", p.charset, p.charsetFrom, want, from)
			}
			if p.title != text || p.decodingErrors {
				t.Errorf("title %q, decoding errors %t, want %q", p.title, p.decodingErrors, text)
			}
		})
	}
}

// TestDetectDamaged: a byte that is out of place does not change the charset.
func TestDetectDamaged(t *testing.T) {
	t.Parallel()
	page := string(encode(t, "shift_jis", markup(strings.Repeat(sentences["japanese"], 3)))) + "\xff"
	if p := read(page, ""); p.charset != "shift_jis" || !p.decodingErrors {
		t.Errorf("charset %q, decoding errors %t, want shift_jis, true", p.charset, p.decodingErrors)
	}
	// More than what is looked at, without a break between characters.
	if _, name := detect(encode(t, "euc-jp", "x"+strings.Repeat(sentences["japanese"], 100))); name != "euc-jp" {
		t.Errorf("a long text is %q, want euc-jp", name)
	}
	// UTF-8 with one broken byte is no other charset for certain, so the default.
	page = sentences["english"] + "\xff"
	if p := read(page, ""); p.charsetFrom != CharsetDefault {
		t.Errorf("charset %q (%s), want the default", p.charset, p.charsetFrom)
	}
}

func FuzzDetect(f *testing.F) {
	for _, text := range sentences {
		f.Add([]byte(text))
	}
	f.Add([]byte("\x81"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if n := len(sample(body)); n > sampleBytes {
			t.Errorf("a sample of %d bytes", n)
		}
		if e, name := detect(body); (e == nil) != (name == "") || name == defaultName {
			t.Errorf("detect(%q) = %v, %q", body, e, name)
		}
	})
}

func BenchmarkDetect(b *testing.B) {
	e, _ := lookup("windows-1251")
	page, err := e.NewEncoder().Bytes([]byte(markup(strings.Repeat(sentences["russian"], 20))))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, name := detect(page); name != "windows-1251" {
			b.Fatal(name)
		}
	}
}
