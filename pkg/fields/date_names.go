package fields

import "strings"

// monthNames are the months in English, German, French, Spanish, Italian, Dutch, Portuguese,
// Polish and Russian, whole and as they are usually cut, with and without accents. None of them
// means two months.
var monthNames = months(
	"jan january januar janvier janv enero ene gennaio gen januari janeiro stycznia styczeń января янв jänner",
	"feb february februar février fevrier févr fevr fév febrero febbraio febr februari fevereiro fev "+
		"lutego luty февраля фев",
	"mar march mär märz marz mrz mars marzo mrt maart março marco marca marzec марта мар",
	"apr april avril avr abril abr aprile kwietnia kwiecień апреля апр",
	"may mai mayo maggio mag mei maio maja maj мая май",
	"jun june juni juin junio giugno giu junho czerwca czerwiec июня июн",
	"jul july juli juillet juil julio luglio lug julho lipca lipiec июля июл",
	"aug august août aout agosto ago augustus sierpnia sierpień августа авг",
	"sep sept september septembre septiembre settembre set setembro września wrzesień сентября сен сент",
	"oct october okt oktober octobre octubre ottobre ott out outubro października październik октября окт",
	"nov november novembre noviembre novembro listopada listopad ноября ноя",
	"dec december dez dezember décembre decembre déc diciembre dic dicembre dezembro grudnia grudzień декабря дек",
)

func months(names ...string) map[string]int {
	out := map[string]int{}
	for i, list := range names {
		for name := range strings.FieldsSeq(list) {
			out[name] = i + 1
		}
	}
	return out
}

// weekdays may stand before a date. They are not compared with it.
var weekdays = func() map[string]bool {
	out := map[string]bool{}
	for name := range strings.FieldsSeq(
		"mon monday tue tues tuesday wed wednesday thu thur thurs thursday fri friday sat saturday sun sunday " +
			"mo montag di dienstag mi mittwoch do donnerstag fr freitag sa samstag sonnabend so sonntag " +
			"lundi lun mardi mercredi mer jeudi jeu vendredi ven samedi sam dimanche dim " +
			"lunes martes miércoles jueves viernes sábado domingo lunedì martedì mercoledì giovedì venerdì sabato domenica " +
			"maandag dinsdag woensdag donderdag vrijdag zaterdag zondag") {
		out[name] = true
	}
	return out
}()

// zones are the names of zones that mean one offset only: those of RFC 5322 s4.3 and of Europe,
// Japan and Korea. CST, which is -06:00 in mail and +08:00 in China, BST and IST are refused.
var zones = map[string]string{
	"z": "Z", "utc": "Z", "gmt": "Z", "ut": "Z", "wet": "Z",
	"est": "-05:00", "edt": "-04:00", "cdt": "-05:00", "mst": "-07:00", "mdt": "-06:00", "pst": "-08:00",
	"pdt":  "-07:00",
	"west": "+01:00", "cet": "+01:00", "cest": "+02:00", "mez": "+01:00", "mesz": "+02:00", "eet": "+02:00",
	"eest": "+03:00",
	"jst":  "+09:00", "kst": "+09:00",
}
