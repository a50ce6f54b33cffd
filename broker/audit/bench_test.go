package audit_test

import (
	"path/filepath"
	"testing"

	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/broker/audit"
)

// The disk is what these measure.

func BenchmarkOneEffectAfterTheOther(b *testing.B) {
	log := open(b, audit.Options{Dir: filepath.Join(b.TempDir(), "audit")})
	for b.Loop() {
		r, err := log.Begin(b.Context(), effect("execute"))
		assert.NilError(b, err)
		assert.NilError(b, r.End(audit.Outcome{Status: "succeeded"}))
	}
}

func BenchmarkEffectsSideBySide(b *testing.B) {
	log := open(b, audit.Options{Dir: filepath.Join(b.TempDir(), "audit")})
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			r, err := log.Begin(b.Context(), effect("execute"))
			if err == nil {
				err = r.End(audit.Outcome{Status: "succeeded"})
			}
			if err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	dir := newDir(b)
	log := open(b, audit.Options{Dir: dir})
	for range 1000 {
		r, err := log.Begin(b.Context(), effect("execute"))
		assert.NilError(b, err)
		assert.NilError(b, r.End(audit.Outcome{Status: "succeeded"}))
	}
	shut(b, log)
	for b.Loop() {
		intact(b, dir)
	}
}
