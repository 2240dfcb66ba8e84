// Package examples has what a newcomer runs first: folders with a small site, a spec, a script of curl lines and a
// README that says what comes out. Its tests run them as their READMEs say, on all of Trawl in one process.
package examples
