package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/redact"
)

func TestWhereThePriceComesFrom(t *testing.T) {
	c := cloud{currency: "USD", guess: 7, guessed: "a guess"}
	for _, test := range []struct {
		given  float64
		field  sdk.Field
		want   float64
		source string
	}{
		{3, sdk.Field{Name: costSetting, Placeholder: "2"}, 3, "given as PRICE"},
		{0, sdk.Field{Name: costSetting, Default: 4.5, Placeholder: "2"}, 4.5, "the default of cost_per_second in the schema of the plugin p"},
		{0, sdk.Field{Name: costSetting, Default: 0, Placeholder: "2"}, 2, "the example of cost_per_second in the schema of the plugin p"},
		{0, sdk.Field{Name: costSetting, Default: 0, Placeholder: "about 2"}, 7, "a guess"},
		{0, sdk.Field{Name: costSetting, Placeholder: "NaN"}, 7, "a guess"},
		{0, sdk.Field{Name: "other", Default: 1.0}, 7, "a guess"},
	} {
		got := priceOf(test.given, "p", sdk.Schema{test.field}, c)
		assert.Equal(t, got.perSecond, test.want)
		assert.Equal(t, got.source, test.source)
	}
}

func TestTheLedgerOutlivesTornLines(t *testing.T) {
	l := ledger{filepath.Join(t.TempDir(), "ledger")}
	one := entry{"one", "verified", "here", time.Unix(1000, 0)}
	two := entry{"two", "aliyun", "there", time.Unix(2000, 0)}
	assert.NilError(t, l.add(one))
	f, err := os.OpenFile(l.file, os.O_APPEND|os.O_WRONLY, 0)
	assert.NilError(t, err)
	_, err = f.WriteString("\nthree verif")
	assert.NilError(t, err)
	assert.NilError(t, f.Close())
	assert.NilError(t, l.add(two))
	assert.NilError(t, l.add(entry{"one", "verified", "here", time.Unix(3000, 0)}))
	one.at = time.Unix(3000, 0)
	all, err := l.all()
	assert.NilError(t, err)
	assert.DeepEqual(t, lines(all), lines([]entry{one, two}))
	assert.NilError(t, l.keep([]entry{two}))
	all, err = l.all()
	assert.NilError(t, err)
	assert.DeepEqual(t, lines(all), lines([]entry{two}))
	assert.NilError(t, l.keep(nil))
	left, err := filepath.Glob(l.file + "*")
	assert.NilError(t, err)
	assert.Equal(t, len(left), 0)
}

func lines(entries []entry) []string {
	var all []string
	for _, e := range entries {
		all = append(all, e.line())
	}
	return all
}

func TestTheBillCountsUntilTheOwnerHasDestroyed(t *testing.T) {
	b := &bill{price: 1}
	b.begin("asked 1")
	b.rename("asked 1", "broker i")
	b.end("other i")
	assert.Equal(t, len(b.since), 1)
	b.begin("asked 2")
	b.rename("asked 2", "broker i") // the same sandbox once more
	assert.Equal(t, len(b.since), 1)
	b.end("broker i")
	assert.Equal(t, len(b.since), 0)
	before, _ := b.total()
	after, _ := b.total()
	assert.Equal(t, before, after)
}

func TestWhatIsShownIsClean(t *testing.T) {
	clean := cleaner{redact.New("+a/key&with<odd>characters")}
	for text, want := range map[string]string{
		"SB009: the sandbox is gone":          "SB009: the sandbox is gone",
		"+a/key&with<odd>characters":          "(secret)",
		`\u002ba`:                             `\u002ba`,
		"GET https://h/p?a=b&c=d: refused":    "GET https://h/p?(secret) refused",
		`Get "https://u:p@h/p#t": EOF`:        `Get "https://(secret)@h/p?(secret)": EOF`,
		"token=abcdefgh, next":                "token=(secret), next",
		`{"accessToken":"abcdefgh","n":1}`:    `{"accessToken":"(secret)","n":1}`,
		`{\"accessToken\":\"abcdefgh\"}`:      `{\"accessToken\":\"(secret)\"}`,
		"a\x1b[2Jb\nc":                        "a?[2Jb\nc",
		"e2b_0123456789abcdef0123456789abcde": "(secret)",
	} {
		assert.Equal(t, clean.text(text), want)
	}
	assert.Assert(t, len(clean.text(strings.Repeat("ü", longest))) <= longest+len("…"))
}
