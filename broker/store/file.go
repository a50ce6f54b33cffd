package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/sandbox-broker/sandbox-broker/broker/privatefile"
	"github.com/sandbox-broker/sandbox-broker/broker/store/boltfile"
)

// Report says what is in a state file.
type Report struct {
	// Transaction numbers the last change, Bytes is the length of the file.
	Transaction uint64 `json:"transaction"`
	Bytes       int64  `json:"bytes"`
	// Records by bucket, and those that cannot be read.
	Records  map[Bucket]int `json:"records"`
	Damaged  int            `json:"damaged_records"`
	Warnings []string       `json:"warnings,omitempty"`
}

// Verify reads a whole state file, without changing it, and says what is in it. The error
// says that it cannot be used. A broker must not be writing to it meanwhile.
func Verify(path string) (Report, error) {
	file, err := privatefile.Open(path, os.O_RDONLY, 0)
	if err != nil {
		return Report{}, err
	}
	defer file.Close()
	return verify(file, path)
}

func verify(file *os.File, path string) (Report, error) {
	info, err := file.Stat()
	if err != nil {
		return Report{}, err
	}
	report := Report{Bytes: info.Size(), Records: map[Bucket]int{}}
	meta, err := boltfile.Check(file, info.Size(), func(bucket string, key, value []byte) error {
		report.Records[Bucket(bucket)]++
		if hasRecords(Bucket(bucket)) && checkSum(Bucket(bucket), string(key), value) != nil {
			report.Damaged++
		}
		return nil
	})
	report.Transaction = meta.Transaction
	if err == nil && meta.Transaction > 1 && report.Records[about] == 0 { // 0 and 1 are of an empty file
		err = errors.New("it does not say what it is")
	}
	if meta.Alone {
		report.Warnings = append(report.Warnings, "one of the two pages that say where the state is cannot be read; the last change may be lost")
	}
	if report.Damaged > 0 {
		report.Warnings = append(report.Warnings, fmt.Sprintf("records that cannot be read: %d", report.Damaged))
	}
	if err != nil {
		return report, damagedError(path, err)
	}
	return report, nil
}

// hasRecords reports whether a bucket holds what Put writes.
func hasRecords(b Bucket) bool { return b != about && b != AnswersByAge }

// missing reports whether there is no file.
func missing(path string) (bool, error) {
	_, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	return false, err
}
