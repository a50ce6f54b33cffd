package site

import (
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"unicode"
)

// What a word in a heading counts, compared with one in the text.
const (
	inTitle   = 4
	inHeading = 8
)

// excerptLength is how many characters of a section are shown with it, at most.
const excerptLength = 160

// found is what the script finds things in: search.js has the other side of this form.
type found struct {
	// Pages are addresses and titles.
	Pages [][2]string `json:"pages"`
	// Sections are a page's number, an anchor, a heading and an excerpt.
	Sections [][4]any `json:"sections"`
	// Terms are all words, in order and with spaces between them.
	Terms string `json:"terms"`
	// Postings are, for each word, numbers of sections and weights in turn.
	Postings [][]int `json:"postings"`
}

// searchIndex makes the index of the pages: which word is in which section, weighted as by
// BM25, so that the script has only to add up.
func searchIndex(pages map[string]*page, order []string) ([]byte, error) {
	var f found
	counts := []map[string]float64{} // by section: words, those in headings several times
	lengths, total := []float64{}, 0.0
	for _, file := range order {
		p := pages[file]
		f.Pages = append(f.Pages, [2]string{p.href, p.title})
		for i := range p.sections {
			s := &p.sections[i]
			said := strings.Join(strings.Fields(s.text.String()), " ")
			if said == "" && s.title == "" {
				continue
			}
			count := map[string]float64{}
			add(count, p.title, inTitle)
			add(count, s.title, inHeading)
			length := add(count, said, 1)
			f.Sections = append(f.Sections, [4]any{len(f.Pages) - 1, s.anchor, s.title, excerpt(said)})
			counts, lengths, total = append(counts, count), append(lengths, length), total+length
		}
	}
	in := map[string][]int{} // the sections of each word, in order
	for section, count := range counts {
		for word := range count {
			in[word] = append(in[word], section)
		}
	}
	terms := slices.Sorted(maps.Keys(in))
	f.Terms = strings.Join(terms, " ")
	average := total / float64(len(counts))
	for _, word := range terms {
		rare := math.Log(1 + (float64(len(counts)-len(in[word]))+0.5)/(float64(len(in[word]))+0.5))
		var posting []int
		for _, section := range in[word] {
			often := counts[section][word]
			weight := rare * often * 2.2 / (often + 1.2*(0.25+0.75*lengths[section]/average))
			posting = append(posting, section, 1+int(weight*10))
		}
		f.Postings = append(f.Postings, posting)
	}
	text, err := json.Marshal(f)
	if err != nil {
		return nil, err
	}
	// A page that was opened as a file may run scripts beside it, and read nothing else.
	return append(append([]byte("self.searchIndex = "), text...), ";\n"...), nil
}

// add counts the words of a text, and returns how many there are.
func add(count map[string]float64, text string, times float64) (length float64) {
	for _, word := range terms(text) {
		count[word] += times
		length++
	}
	return length
}

// terms are the words of a text in lower case, and the parts of names such as max_lifetime
// beside the names. search.js takes a question apart in the same way.
func terms(text string) (all []string) {
	for word := range strings.FieldsFuncSeq(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_'
	}) {
		if word = strings.Trim(word, "_"); word == "" {
			continue
		}
		all = append(all, word)
		if parts := strings.FieldsFunc(word, func(r rune) bool { return r == '_' }); len(parts) > 1 {
			all = append(all, parts...)
		}
	}
	return all
}

// excerpt is the beginning of a text, to the end of a word.
func excerpt(text string) string {
	letters := []rune(text)
	if len(letters) <= excerptLength {
		return text
	}
	cut := string(letters[:excerptLength])
	if space := strings.LastIndexByte(cut, ' '); space > 0 {
		cut = cut[:space]
	}
	return cut + " …"
}
