package seal_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/config/seal"
)

func ringOf(t testing.TB, keys ...string) *seal.Keyring {
	t.Helper()
	ring, err := seal.ParseKeys(strings.Join(keys, "\n"))
	assert.NilError(t, err)
	return ring
}

func sealed(t testing.TB, ring *seal.Keyring, value string) string {
	t.Helper()
	text, err := ring.Seal(value)
	assert.NilError(t, err)
	return text
}

func TestWhatIsSealedOpensAgain(t *testing.T) {
	ring := ringOf(t, seal.NewKey())
	for _, value := range []string{"", "hunter2", "zwei\nZeilen \x00 und \xff", strings.Repeat("x", seal.MaxValue)} {
		text := sealed(t, ring, value)
		assert.Assert(t, value == "" || !strings.Contains(text, value))
		assert.Assert(t, text != sealed(t, ring, value), "the same value is sealed into another text each time")
		got, err := ring.Open(text)
		assert.NilError(t, err)
		assert.Equal(t, got, value)
	}
	_, err := ring.Seal(strings.Repeat("x", seal.MaxValue+1))
	assert.Error(t, err, "the value is larger than 64 KiB")
}

func TestTheFirstKeySealsAndAllOpen(t *testing.T) {
	old, young := seal.NewKey(), seal.NewKey()
	before := sealed(t, ringOf(t, old), "hunter2")
	both := ringOf(t, young, old)
	got, err := both.Open(before)
	assert.NilError(t, err)
	assert.Equal(t, got, "hunter2")
	assert.Assert(t, !both.OpensFirst(before))
	after := sealed(t, both, "hunter2")
	assert.Assert(t, both.OpensFirst(after))
	_, err = ringOf(t, old).Open(after)
	assert.ErrorIs(t, err, seal.ErrUnknownKey)
	assert.Assert(t, is.Contains(err.Error(), ringOf(t, young).IDs()[0]))
}

// Every single character counts: none can be changed, left out or put in.
func TestASealedValueThatWasTouchedDoesNotOpen(t *testing.T) {
	ring := ringOf(t, seal.NewKey())
	text := sealed(t, ring, "hunter2")
	check := func(touched string) {
		t.Helper()
		value, err := ring.Open(touched)
		assert.Assert(t, err != nil, "%q opens", touched)
		assert.Equal(t, value, "")
	}
	for i := range len(text) {
		check(text[:i])
		check(text[:i] + text[i+1:])
		for _, c := range []string{"A", "B", "0", "1", "_", ":", "\n", " "} {
			if c != text[i:i+1] {
				check(text[:i] + c + text[i+1:])
			}
			check(text[:i] + c + text[i:])
		}
	}
	check(text + "A")
	check(text + "=")
	check(text + "\n")
}

func TestAValueDoesNotOpenUnderTheNameOfAnotherKey(t *testing.T) {
	one, two := ringOf(t, seal.NewKey()), ringOf(t, seal.NewKey())
	text := sealed(t, one, "hunter2")
	_, err := one.Join(two).Open(strings.Replace(text, one.IDs()[0], two.IDs()[0], 1))
	assert.ErrorIs(t, err, seal.ErrChanged)
}

func TestTheErrorSaysWhatToDoAndNotWhatWasThere(t *testing.T) {
	ring := ringOf(t, seal.NewKey())
	for name, test := range map[string]struct {
		text string
		want error
	}{
		"a secret that was never sealed":        {"hunter2", seal.ErrForm},
		"one that looks a bit like it":          {"sb1:hunter2", seal.ErrForm},
		"a later form":                          {"sb2:0a1b2c3d:aaaa", seal.ErrForm},
		"nothing":                               {"", seal.ErrForm},
		"a key that is not here":                {"sb1:00000000:" + strings.Repeat("hunter2a", 8), seal.ErrUnknownKey},
		"too short for a nonce":                 {"sb1:" + ring.IDs()[0] + ":aaaa", seal.ErrChanged},
		"base64 that ends within a byte":        {"sb1:" + ring.IDs()[0] + ":aaaaa", seal.ErrChanged},
		"base64 with bits that are not counted": {"sb1:" + ring.IDs()[0] + ":ab", seal.ErrChanged},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := ring.Open(test.text)
			assert.ErrorIs(t, err, test.want)
			assert.Assert(t, !strings.Contains(err.Error(), "hunter2"))
			assert.Assert(t, strings.Contains(err.Error(), "seal the value"))
		})
	}
}

func TestKeysThatAreNone(t *testing.T) {
	good := seal.NewKey()
	for text, want := range map[string]string{
		"":                       "there is no key in it",
		"# only a comment\n":     "there is no key in it",
		"hunter2":                "line 1 does not begin with sbkey_",
		good + "\n\nsbkey_abc":   "line 3 is not sbkey_ and 43 characters of base64url",
		good[:len(good)-1] + "_": "line 1 is not sbkey_ and 43 characters of base64url",
		good + "A":               "line 1 is not sbkey_ and 43 characters of base64url",
		good + " " + good:        "line 1 repeats the key " + ringOf(t, good).IDs()[0],
	} {
		_, err := seal.ParseKeys(text)
		assert.Check(t, err != nil && (err.Error() == want), "%q: %v", strings.ReplaceAll(text, good, "KEY"), err)
	}
	ring := ringOf(t, "# new\r", "  "+good+"\r", "", seal.NewKey()+" "+seal.NewKey())
	assert.Assert(t, is.Len(ring.IDs(), 3))
	var none seal.Keyring
	_, err := none.Seal("x")
	assert.Error(t, err, "there is no key to seal with")
}

func TestPrintingAKeyringShowsNoKey(t *testing.T) {
	key := seal.NewKey()
	ring := ringOf(t, key)
	secret, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(key, "sbkey_"))
	assert.NilError(t, err)
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		text := fmt.Sprintf(verb, ring) + fmt.Sprintf(verb, struct{ R *seal.Keyring }{ring})
		assert.Assert(t, !strings.Contains(text, key[6:20]))
		assert.Assert(t, !strings.Contains(text, strings.Trim(fmt.Sprintf("%d", secret[:4]), "[]")), "%s", text)
	}
}

// FuzzOpen checks that no text panics, and that whatever opens is what Seal
// wrote.
func FuzzOpen(f *testing.F) {
	const key = "sbkey_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"
	ring := ringOf(f, key)
	const known = "sb1:5f4ddb8c:hfUKBBPlG-6zNoMbZgOGyvDl6m6RpGQmhBUmAOMnSZ7cPAA"
	for _, text := range []string{sealed(f, ring, "hunter2"), known, "", "sb1::", "sb1:00000000:", "sb1:" + ring.IDs()[0] + ":", "hunter2"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := ring.Open(text)
		if err == nil {
			again, err := ring.Open(sealed(t, ring, value))
			assert.NilError(t, err)
			assert.Equal(t, again, value)
			return
		}
		assert.Equal(t, value, "")
		if len(text) > 40 && strings.Contains(err.Error(), text) {
			t.Fatalf("the error repeats the text: %v", err)
		}
	})
}
