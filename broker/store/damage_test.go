package store_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/broker/store"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const pageSize = 4096

// wholeFile returns a state file with pages of every kind: two levels of branches, leaves,
// pages that overflow, small buckets within a page, free pages and the list of them.
func wholeFile(t *testing.T) []byte {
	t.Helper()
	s := newStore(t)
	for round := range 4 {
		assert.NilError(t, s.Update(t.Context(), func(tx store.Tx) error {
			for n := range 150 {
				r := record{Name: strings.Repeat("x", 100), Count: n + round}
				if n == 70 {
					r.Name = strings.Repeat("y", 3*pageSize)
				}
				if err := put(fmt.Sprintf("%0300d", n), r)(tx); err != nil {
					return err
				}
			}
			return store.Put(tx, store.Usage, "acme", record{Name: "acme", Count: 7})
		}))
	}
	assert.NilError(t, s.Close())
	content, err := os.ReadFile(s.Path())
	assert.NilError(t, err)
	return content
}

// kindOf names what a page is for.
func kindOf(content []byte, page int) string {
	at := content[page*pageSize:]
	switch binary.LittleEndian.Uint16(at[8:]) {
	case 0x01:
		return "branch"
	case 0x02:
		return "leaf"
	case 0x04:
		return "meta"
	case 0x10:
		return "freelist"
	default:
		return "overflow or unused"
	}
}

// openDamaged opens a file of that content and returns what its records say, by key.
func openDamaged(t *testing.T, content []byte) (records map[string]int, unreadable int, err error) {
	t.Helper()
	path := filepath.Join(inMemory(t), "state.db")
	assert.NilError(t, os.WriteFile(path, content, 0o600))
	s, err := store.Open(path, store.Options{LockTimeout: time.Second})
	if err != nil {
		after, readErr := os.ReadFile(path)
		assert.NilError(t, readErr)
		assert.Assert(t, bytes.Equal(after, content), "a damaged file must stay as it is")
		return nil, 0, err
	}
	defer func() { assert.Check(t, s.Close()) }()
	records = map[string]int{}
	assert.NilError(t, s.View(func(tx store.Tx) error {
		for _, bucket := range []store.Bucket{store.Instances, store.Usage} {
			if err := store.Each(tx, bucket, func(key string, r record, err error) error {
				if err != nil {
					unreadable++
					return nil //nolint:nilerr // it is counted
				}
				records[key] = r.Count
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	}))
	assert.NilError(t, s.Update(t.Context(), put("after", record{})))
	return records, unreadable, nil
}

func isTheSentence(t *testing.T, err error) {
	t.Helper()
	assert.ErrorIs(t, err, store.ErrDamaged)
	assert.ErrorContains(t, err, "is not a state file, or it is damaged")
	assert.ErrorContains(t, err, "sandbox-broker state restore")
	assert.Equal(t, sdk.CodeOf(err), sdk.CodeUnavailable)
}

func TestAFileThatWasCutIsRefused(t *testing.T) {
	whole := wholeFile(t)
	high := int(binary.LittleEndian.Uint64(whole[16+40:]))
	if other := whole[pageSize:]; binary.LittleEndian.Uint64(other[16+48:]) > binary.LittleEndian.Uint64(whole[16+48:]) {
		high = int(binary.LittleEndian.Uint64(other[16+40:]))
	}
	need := high * pageSize
	assert.Assert(t, need > 40*pageSize, "%d", need)
	for _, length := range []int{0, 1, 15, 80, 1024, pageSize - 1, pageSize, 2*pageSize - 1, 2 * pageSize, 3 * pageSize, 20_000, 10*pageSize + 17, need / 4, need / 2, need - pageSize, need - 1} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			_, _, err := openDamaged(t, whole[:length])
			isTheSentence(t, err)
		})
	}
	t.Run("what no page of the tree is in may be missing", func(t *testing.T) {
		_, _, err := openDamaged(t, whole[:need])
		assert.NilError(t, err)
	})
}

func TestAPageOfZerosIsRefusedOrHarmless(t *testing.T) {
	whole := wholeFile(t)
	before, _, err := openDamaged(t, whole)
	assert.NilError(t, err)
	refused := map[string]int{}
	for page := range len(whole) / pageSize {
		content := bytes.Clone(whole)
		clear(content[page*pageSize : (page+1)*pageSize])
		records, unreadable, err := openDamaged(t, content)
		if err != nil {
			isTheSentence(t, err)
			refused[kindOf(whole, page)]++
			continue
		}
		// A meta page goes to the transaction before; in the middle of a record it
		// is the record that does not read.
		if kindOf(whole, page) != "meta" {
			assert.Equal(t, len(records)+unreadable, len(before), "page %d", page)
		}
	}
	for _, kind := range []string{"branch", "leaf", "freelist"} {
		assert.Assert(t, refused[kind] > 0, kind)
	}
	t.Logf("refused: %v", refused)
}

func TestAFlippedBitIsRefusedOrNoticedOrHarmless(t *testing.T) {
	whole := wholeFile(t)
	before, _, err := openDamaged(t, whole)
	assert.NilError(t, err)
	noticed := map[string]int{}
	// The head of each page and of its entries, some of what they point at, and its end.
	offsets := []int{0, 7, 8, 9, 10, 11, 12, 15, 16, 17, 19, 20, 23, 24, 27, 28, 31, 32, 40, 48, 56, 64, 72, 79, 100, 500, 1500, 2500, 3500, pageSize - 200, pageSize - 1}
	every := 4
	if testing.Short() {
		every = 40
	}
	for page := range len(whole) / pageSize {
		for n, offset := range offsets {
			if kindOf(whole, page) != "freelist" && (page+n)%every != 0 {
				continue // each offset on some of the pages
			}
			content := bytes.Clone(whole)
			content[page*pageSize+offset] ^= 1 << ((page/every + n) % 8)
			records, unreadable, err := openDamaged(t, content)
			if err != nil {
				isTheSentence(t, err)
				noticed[kindOf(whole, page)]++
				continue
			}
			if kindOf(whole, page) == "meta" {
				continue // the transaction before
			}
			if unreadable > 0 {
				noticed[kindOf(whole, page)]++
			}
			for key, count := range records {
				want, found := before[key]
				assert.Assert(t, found && want == count, "page %d offset %d: a record was believed that nobody wrote: %q %d", page, offset, key, count)
			}
			assert.Equal(t, len(records)+unreadable, len(before), "page %d offset %d", page, offset)
		}
	}
	for _, kind := range []string{"branch", "leaf", "freelist"} {
		assert.Assert(t, noticed[kind] > 0, kind)
	}
	t.Logf("noticed: %v", noticed)
}

func TestWhatIsNoFileIsRefused(t *testing.T) {
	for name, make := range map[string]func(path string) error{
		"a pipe":          func(path string) error { return mkfifo(path) },
		"a directory":     func(path string) error { return os.Mkdir(path, 0o700) },
		"a symbolic link": func(path string) error { return os.Symlink("/dev/null", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "state.db")
			assert.NilError(t, make(path))
			_, err := store.Open(path, store.Options{})
			assert.Assert(t, err != nil)
			assert.Assert(t, strings.Contains(err.Error(), "ordinary file") || strings.Contains(err.Error(), "symbolic link"), "%v", err)
		})
	}
}

// TestAFileThatIsDamagedWhileItIsOpen is what cp over the file does, and truncate.
func TestAFileThatIsDamagedWhileItIsOpen(t *testing.T) {
	other := wholeFile(t)
	for name, spoil := range map[string]func(t *testing.T, path string){
		"cut to nothing": func(t *testing.T, path string) { assert.NilError(t, os.Truncate(path, 0)) },
		"cut in half":    func(t *testing.T, path string) { assert.NilError(t, os.Truncate(path, 20_000)) },
		"another one copied over it": func(t *testing.T, path string) {
			assert.NilError(t, os.WriteFile(path, other, 0o600))
		},
		"text copied over it": func(t *testing.T, path string) {
			assert.NilError(t, os.WriteFile(path, []byte(strings.Repeat("not a database\n", 20_000)), 0o600))
		},
	} {
		for way, use := range map[string]func(s *store.Store) error{
			"an update": func(s *store.Store) error { return s.Update(t.Context(), put("next", record{})) },
			"a view": func(s *store.Store) error {
				return s.View(func(tx store.Tx) error {
					var r record
					_, err := store.Get(tx, store.Instances, fmt.Sprintf("%0300d", 149), &r)
					return err
				})
			},
		} {
			t.Run(name+", then "+way, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "state.db")
				assert.NilError(t, os.WriteFile(path, wholeFile(t), 0o600))
				s, err := store.Open(path, store.Options{})
				assert.NilError(t, err)
				assert.NilError(t, s.Update(t.Context(), put("first", record{})))
				spoil(t, path)
				// A view may find what it asks for in what was copied; then the next
				// look of the writer finds out.
				poll.WaitOn(t, func(poll.LogT) poll.Result {
					if err := use(s); errors.Is(err, store.ErrDamaged) {
						return poll.Success()
					}
					return poll.Continue("not noticed")
				}, poll.WithTimeout(2*time.Minute))
				isTheSentence(t, s.Update(t.Context(), put("more", record{})))
				isTheSentence(t, s.Err())
				isTheSentence(t, s.Close())
			})
		}
	}
}

func TestAFileThatWasRemovedIsMadeAgain(t *testing.T) {
	for name, remove := range map[string]func(t *testing.T, path string){
		"the file alone": func(t *testing.T, path string) { assert.NilError(t, os.Remove(path)) },
		"its directory":  func(t *testing.T, path string) { assert.NilError(t, os.RemoveAll(filepath.Dir(path))) },
		"another one there": func(t *testing.T, path string) {
			assert.NilError(t, os.WriteFile(path+".other", []byte("other"), 0o600))
			assert.NilError(t, os.Rename(path+".other", path))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			assert.NilError(t, os.Mkdir(dir, 0o700))
			path := filepath.Join(dir, "state.db")
			s, err := store.Open(path, store.Options{})
			assert.NilError(t, err)
			assert.NilError(t, s.Update(t.Context(), put("before", record{Count: 1})))
			remove(t, path)
			assert.NilError(t, s.Update(t.Context(), put("after", record{Count: 2})))
			assert.NilError(t, s.Update(t.Context(), put("after that", record{Count: 3})))
			again := crashed(t, s)
			for key, count := range map[string]int{"before": 1, "after": 2, "after that": 3} {
				got, found := get(t, again, key)
				assert.Assert(t, found, key)
				assert.Equal(t, got.Count, count)
			}
			assert.NilError(t, s.Close())
			found, err := filepath.Glob(path + ".found-*")
			assert.NilError(t, err)
			assert.Equal(t, len(found) == 1, name == "another one there")
		})
	}
}

func TestAPanicOfACallerIsNoDamage(t *testing.T) {
	s := newStore(t)
	func() {
		defer func() { assert.Equal(t, recover(), "a mistake") }()
		_ = s.View(func(store.Tx) error { panic("a mistake") })
	}()
	assert.NilError(t, s.Err())
	assert.NilError(t, s.Update(t.Context(), put("next", record{})))
}
