package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
)

// A record ends with the sum of its bucket, its key and what stands before the sum, as one
// more field of its JSON: bbolt has no sums for its pages, and a bit that flips in a
// number would be believed. Records of earlier brokers have none, and those ignore it.
const (
	sumField = `"_sum":"`
	sumSize  = len(sumField) + 8 + len(`"}`)
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	errSum     = errors.New("its sum is wrong: the disk or a copy has changed it")
)

// withSum adds the sum to a record; what is no object stays as it is.
func withSum(bucket Bucket, key string, value []byte) []byte {
	if len(value) < 2 || value[len(value)-1] != '}' {
		return value
	}
	open := value[:len(value)-1]
	comma := ","
	if len(bytes.TrimSpace(open)) == 1 {
		comma = ""
	}
	return fmt.Appendf(nil, `%s%s%s%08x"}`, open, comma, sumField, sumOf(bucket, key, open))
}

func sumOf(bucket Bucket, key string, open []byte) uint32 {
	sum := crc32.Update(0, castagnoli, []byte(string(bucket)+"\x00"+key+"\x00"))
	return crc32.Update(sum, castagnoli, open)
}

// checkSum reports a record whose sum is wrong, also where the mark of the sum is what was
// damaged.
func checkSum(bucket Bucket, key string, value []byte) error {
	if !json.Valid(value) {
		return errors.New("it is not JSON")
	}
	at := len(value) - sumSize
	if at < 1 || !bytes.Equal(value[at:at+len(sumField)], []byte(sumField)) {
		if looksSummed(value) {
			return errSum
		}
		return nil
	}
	open := bytes.TrimSuffix(value[:at], []byte(","))
	if want := fmt.Sprintf("%08x", sumOf(bucket, key, open)); want != string(value[at+len(sumField):len(value)-2]) {
		return errSum
	}
	return nil
}

// looksSummed reports whether the end of a record is that of one with a sum whose mark
// was damaged: six of its eight bytes are still there.
func looksSummed(value []byte) bool {
	at := len(value) - sumSize
	if at < 0 {
		return false
	}
	same := 0
	for i := range len(sumField) {
		if value[at+i] == sumField[i] {
			same++
		}
	}
	return same >= len(sumField)-2
}
