package filetext

import (
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Bounds on needles, which are meant to be looked for fast.
const (
	maxNeedles = 16
	maxPlaces  = 32 // of a needle
)

// needlesOf finds needles of a pattern: see Search.Needles. It looks for one text that all
// matches have, or for one in each alternative.
func needlesOf(re *syntax.Regexp) [][][]string {
	switch re.Op {
	case syntax.OpLiteral:
		return needleOf(re)
	case syntax.OpCapture, syntax.OpPlus:
		return needlesOf(re.Sub[0])
	case syntax.OpConcat:
		var best [][][]string
		for _, sub := range re.Sub {
			if needles := needlesOf(sub); shortest(needles) > shortest(best) {
				best = needles
			}
		}
		return best
	case syntax.OpAlternate:
		var all [][][]string
		for _, sub := range re.Sub {
			needles := needlesOf(sub)
			if needles == nil || len(all)+len(needles) > maxNeedles {
				return nil
			}
			all = append(all, needles...)
		}
		return all
	}
	return nil
}

// shortest is how many places the shortest of needles has, 0 for no needles.
func shortest(needles [][][]string) int {
	places := 0
	for i, needle := range needles {
		if i == 0 || len(needle) < places {
			places = len(needle)
		}
	}
	return places
}

// needleOf is the longest part of a literal without U+FFFD, which also stands for any byte
// that is no UTF-8.
func needleOf(re *syntax.Regexp) [][][]string {
	var best, needle [][]string
	for _, r := range re.Rune {
		forms := formsOf(r, re.Flags&syntax.FoldCase != 0)
		if forms == nil {
			needle = nil
			continue
		}
		needle = append(needle, forms)
		if len(needle) > len(best) {
			best = slices.Clone(needle)
		}
	}
	if best == nil {
		return nil
	}
	return [][][]string{best[:min(len(best), maxPlaces)]}
}

// formsOf are the characters that match one, as a case folds them; none where that is
// U+FFFD.
func formsOf(r rune, fold bool) (forms []string) {
	for at := r; ; {
		if at == utf8.RuneError {
			return nil
		}
		forms = append(forms, string(at))
		if !fold {
			return forms
		}
		if at = unicode.SimpleFold(at); at == r {
			return forms
		}
	}
}
