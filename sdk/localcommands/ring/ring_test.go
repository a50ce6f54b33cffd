package ring

import (
	"bytes"
	"testing"

	"gotest.tools/v3/assert"
)

// FuzzRing compares a ring with all that was ever written to it.
func FuzzRing(f *testing.F) {
	f.Add([]byte{1, 2, 3}, uint16(4))
	f.Add([]byte{255, 0, 255, 255, 17}, uint16(100))
	f.Add([]byte{200, 200, 200, 200, 200, 200}, uint16(9000))
	f.Fuzz(func(t *testing.T, sizes []byte, keep uint16) {
		r := New(int(keep) + 1)
		var all []byte
		for i, size := range sizes {
			p := bytes.Repeat([]byte{byte(i)}, 40*int(size))
			r.Write(p)
			all = append(all, p...)
			assert.Equal(t, r.Total(), int64(len(all)))
			assert.Assert(t, r.Held() <= r.keep)
			kept := min(len(all), r.keep)
			offset, got := r.Read(0, int64(len(all))+1)
			assert.Equal(t, offset, int64(len(all)-kept))
			assert.Assert(t, bytes.Equal(got, all[len(all)-kept:]))
			middle := int64(len(all) - kept/2)
			offset, got = r.Read(middle, 7)
			assert.Equal(t, offset, middle)
			assert.Assert(t, bytes.Equal(got, all[middle:min(int(middle)+7, len(all))]))
		}
		_, none := r.Read(r.Total()+5, 10)
		assert.Equal(t, len(none), 0)
		r.Forget()
		r.Write([]byte("new"))
		offset, got := r.Read(0, 10)
		lost := 3 - min(3, r.keep)
		assert.Equal(t, offset, int64(len(all)+lost))
		assert.Equal(t, string(got), "new"[lost:])
	})
}
