package fields

// dayOrder is how a date of three numbers is read.
type dayOrder byte

const (
	dayUnknown dayOrder = iota // refused where both orders are possible
	dayFirst
	monthFirst
)

// locale is how numbers and dates are written.
type locale struct {
	// group are the signs that may stand between thousands, point those before decimals.
	group, point string
	indian       bool // 12,34,567 is written as well
	order        dayOrder
	auto         bool // nothing is known: what can be read in two ways is refused
}

// locales by name. Spaces are one ' ' here. "en" does not know whether 03/04 is in March or April;
// "us" and "gb" do. "de-at" and the like are not offered, since some regions write as others do
// (es-MX, de-CH): the names here are of ways to write.
var locales = map[string]*locale{
	"":   {group: ",.'", point: ".,", auto: true},
	"en": {group: ",", point: "."},
	"us": {group: ",", point: ".", order: monthFirst},
	"gb": {group: ",", point: ".", order: dayFirst},
	"de": {group: ". ", point: ",", order: dayFirst},
	"fr": {group: " ", point: ",", order: dayFirst},
	"ch": {group: "' ", point: ".", order: dayFirst},
	"in": {group: ",", point: ".", order: dayFirst, indian: true},
	"zh": {group: ",", point: "."},
	"ja": {group: ",", point: "."},
	"ko": {group: ",", point: "."},
	"ar": {group: ",", point: ".", order: dayFirst},
	"es": {group: ". ", point: ",", order: dayFirst},
	"it": {group: ". ", point: ",", order: dayFirst},
	"nl": {group: ". ", point: ",", order: dayFirst},
	"pt": {group: ". ", point: ",", order: dayFirst},
	"pl": {group: " ", point: ",", order: dayFirst},
	"ru": {group: " ", point: ",", order: dayFirst},
}

// Locales are the names that [Field.Locale] may have. They say how numbers are grouped, which sign
// stands before decimals, and whether the day or the month is first in 03/04/2024:
//
//	en, us, gb, zh, ja, ko, ar  1,234.5   us: month first; gb, ar: day first; en, zh, ja, ko: refused
//	in                          12,34,567.5 and 1,234,567.5, day first
//	de, es, it, nl, pt          1.234,5 and 1 234,5, day first
//	fr, pl, ru                  1 234,5, day first
//	ch                          1'234.5 and 1 234.5, day first
//
// The digits and signs of all scripts are read in each of them, such as １２ and ١٢٫٥.
var Locales = []string{
	"en", "us", "gb", "de", "fr", "ch", "in", "zh", "ja", "ko", "ar", "es", "it", "nl", "pt", "pl", "ru",
}
