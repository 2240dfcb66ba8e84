package fields

import (
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNumbers(t *testing.T) {
	t.Parallel()
	const none = ""
	for _, tt := range []struct{ locale, text, want string }{
		{"", "42", "42"},
		{"", "1234.5", "1234.5"},
		{"", "12.50", "12.5"},
		{"", "1,5", "1.5"},
		{"", "1.234,56", "1234.56"},
		{"", "1,234.56", "1234.56"},
		{"", "1,234,567", "1234567"},
		{"", "1,234", none},
		{"", "1.234", none},
		{"", "0.125", "0.125"},
		{"", "1'234'567.5", "1234567.5"},
		{"", "1 234", none},
		{"", "1.2.3", none},
		{"", "1,234.567,8", none},
		{"", "1234.567", "1234.567"},
		{"en", "1,234", "1234"},
		{"en", "1,234.5", "1234.5"},
		{"en", "1,23", none},
		{"en", "12,34,567", none},
		{"en", ".5", "0.5"},
		{"en", "$1,299.00", "1299"},
		{"en", "US$ 5", "5"},
		{"en", "USD12.50", "12.5"},
		{"en", "-$5", "-5"},
		{"en", "$-5", "-5"},
		{"en", "$ -5.10", "-5.1"},
		{"en", "5.", "5"},
		{"en", "Temp: -5 °C", "-5"},
		{"en", "Temp -5", "-5"},
		{"en", "Price - 12", none},
		{"en", "Price - $12", none},
		{"en", "SKU-12", none},
		{"en", "A4", none},
		{"en", "v1.5", none},
		{"en", "12 m2", "12"},
		{"en", "4.5 out of 5", none},
		{"en", "10-20", none},
		{"en", "10 – 20", none},
		{"en", "1/2", none},
		{"en", "½", none},
		{"en", "1½", none},
		{"en", "10²", none},
		{"en", "12 m²", "12"},
		{"en", "12m2", "12"},
		{"en", "minus 5", none},
		{"zh", "零下5度", none},
		{"zh", "3百", "300"},

		{"en", "12h30", none},
		{"en", "3x2", none},
		{"en", "5 t CO2 a year", "5"},
		{"en", "2 m24", none},
		{"en", "12:30", none},
		{"en", "2024-03-04", none},
		{"en", "(5)", "5"},
		{"en", "Reviews (1,024)", "1024"},
		{"en", "12 %", "12"},
		{"en", "12%", "12"},
		{"en", "−7", "-7"},
		{"en", "- 7", "-7"},
		{"en", "+7", "7"},
		{"en", "--7", none},
		{"en", "15k", "15000"},
		{"en", "1.5K", "1500"},
		{"en", "5 km", "5"},
		{"en", "5 k", none},
		{"en", "12M", none},
		{"en", "12 m", "12"},
		{"en", "3 million", "3000000"},
		{"en", "1.25 million users", "1250000"},
		{"en", "2 billion", "2000000000"},
		{"de", "2 Billionen", none},
		{"en", "1e3", "1000"},
		{"en", "-1.5E-3", "-0.0015"},
		{"en", "1e99", none},
		{"en", "1.5e+2", "150"},
		{"en", "007", "7"},
		{"en", "-0", "0"},
		{"en", "-0.0", "0"},
		{"en", "two dozen", none},
		{"en", "2 dozen", none},
		{"en", "", none},
		{"en", "none", none},
		{"en", "1,234,56", none},
		{"en", "5*3", none},
		{"de", "€ 1.234,50", "1234.5"},
		{"de", "1.234", "1234"},
		{"de", "1 234,5 kg", "1234.5"},
		{"de", "12,5", "12.5"},
		{"de", "12.5", none},
		{"de", "1.234,-", "1234"},
		{"de", "1.234,– €", "1234"},
		{"de", "12,— €", "12"},
		{"de", "3 Mio. Euro", "3000000"},
		{"de", "2 Mrd", "2000000000"},
		{"fr", "1 234,5 kg", "1234.5"},
		{"fr", "1\u202f234\u00a0567,89 €", "1234567.89"},
		{"fr", "10 20", none},
		{"fr", "1.234", none},
		{"ch", "CHF 1'234.50", "1234.5"},
		{"ch", "1’234’567.-", "1234567"},
		{"ch", "Fr. 12.90", "12.9"},
		{"in", "₹1,23,456", "123456"},
		{"in", "Rs. 12,34,567.50", "1234567.5"},
		{"in", "1,234,567", "1234567"},
		{"in", "1,2345", none},
		{"in", "5 lakh", "500000"},
		{"in", "2.5 crore", "25000000"},
		{"zh", "１２３４．５", "1234.5"},
		{"zh", "￥１，２３４", "1234"},
		{"zh", "3万", "30000"},
		{"zh", "1.5万元", "15000"},
		{"zh", "2亿", "200000000"},
		{"zh", "约15元", "15"},
		{"zh", "15-25k", none},
		{"ja", "1,980円", "1980"},
		{"ja", "3万5千", none},
		{"ar", "١٬٢٣٤٫٥", "1234.5"},
		{"ar", "٤٢", "42"},
		{"in", "१२३", "123"},
		{"en", "9007199254740993", "9007199254740993"},
		{"en", "123456789012345678901234567890", "123456789012345678901234567890"},
		{"en", strings.Repeat("9", 65), none},
		{"en", strings.Repeat("x", 300) + "1", none},
	} {
		got, ok := parseNumber(tt.text, locales[tt.locale])
		if !ok {
			got = none
		}
		if got != tt.want {
			t.Errorf("%s %q: %q, want %q", tt.locale, tt.text, got, tt.want)
		}
	}
}

func TestIntegers(t *testing.T) {
	t.Parallel()
	got, result := record(t, `{"i":{"selector":"p","type":"integer","many":true}}`,
		`<p>9007199254740993<p>12.0<p>12.5<p>-3`)
	if got != `{"i":[9007199254740993,12,-3]}` || result.Unparsed["fields.i"] != 1 {
		t.Errorf("%s %v", got, result.Unparsed)
	}
}

// group writes digits as a locale does.
func group(s, sep string, indian bool) string {
	size := 3
	out := ""
	for len(s) > size {
		out = sep + s[len(s)-size:] + out
		s = s[:len(s)-size]
		if indian {
			size = 2
		}
	}
	return s + out
}

// Each number comes back from each way to write it.
func TestNumberRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(Locales).Draw(t, "locale")
		in := locales[name]
		n := rapid.Int64Range(0, 1e15).Draw(t, "whole")
		cents := rapid.IntRange(0, 99).Draw(t, "cents")
		sep := string(rapid.SampledFrom([]byte(in.group)).Draw(t, "sep"))
		text := group(strconv.FormatInt(n, 10), sep, in.indian)
		want := strconv.FormatInt(n, 10)
		if cents > 0 {
			text += in.point[:1] + twoDigits(cents)
			want = strings.TrimRight(want+"."+twoDigits(cents), "0")
		}
		if rapid.Bool().Draw(t, "negative") {
			text = "-" + text
			if want != "0" {
				want = "-" + want
			}
		}
		text = rapid.SampledFrom([]string{"", "€ ", "Price: "}).Draw(t, "before") + text +
			rapid.SampledFrom([]string{"", " kg", " €", "%"}).Draw(t, "behind")
		if got, ok := parseNumber(text, in); !ok || got != want {
			t.Fatalf("%s %q: %q %v, want %q", name, text, got, ok, want)
		}
	})
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"€ 1.234,50", "1 234", "-$5", "1e3", "３万", "½"} {
		f.Add(s, "de")
		f.Add(s, "")
	}
	f.Fuzz(func(t *testing.T, s, locale string) {
		in := locales[locale]
		if in == nil {
			in = locales[""]
		}
		got, ok := parseNumber(s, in)
		if !ok {
			return
		}
		again, ok := parseNumber(got, locales["en"])
		if !ok || again != got {
			t.Errorf("%q gives %q, which gives %q", s, got, again)
		}
		if _, err := strconv.ParseFloat(got, 64); err != nil {
			t.Errorf("%q gives %q: %v", s, got, err)
		}
	})
}
