// Package fields takes values out of a page: it compiles what a job asks for when the job is
// submitted, and runs it on each parsed page.
//
//	program, faults := fields.Compile(fields.Spec{Fields: fields.Fields{
//		{Name: "title", Field: fields.Field{Selector: "h1", Required: true}},
//		{Name: "price", Field: fields.Field{Selector: ".price", Type: fields.Number, Locale: "de"}},
//	}})
//	result, err := program.Run(document, url)
//
// # Text
//
// The text of an element is what a reader sees of it. The source in script, style, template,
// noscript and the like is left out. Blocks and br separate words. U+00A0 and all other spaces of
// Unicode are blanks, a run of blanks is one, and those at both ends go. What has no width
// (U+00AD, U+200B, U+2060, U+FEFF) goes, too. Inside pre and textarea the line breaks and blanks
// stay. A script that is selected itself gives its source, so that JSON-LD can be read.
// An attribute keeps its blanks inside and loses those at both ends.
//
// # Absence
//
// A field without a match is null in its record, and an empty list if it is many. An element
// without text gives "", an absent attribute gives no match. A required field must have a value
// that is not empty. The default of a field stands in where nothing matched. A value that does
// not parse is never guessed: the field is null, and counted in [Result.Unparsed].
//
// # Bounds
//
// Selectors, expressions and pages are all chosen by others. Running a program takes at most
// [MaxSteps] steps a page, counted and not timed, so that the same page always gives the same
// result. Fields that did not get their steps are null and named in [Result.Stopped].
package fields
