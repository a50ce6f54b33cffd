package nemesis_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// skews are how much the clocks of the brokers are ahead, each's own. Behind is as far as a
// broker may be late to destroy what nobody knows.
var skews = [brokers]time.Duration{0, 30 * time.Second, 10 * time.Minute, -10 * time.Second, -20 * time.Second}

// skewVariable has by how many seconds the clock of a process is ahead.
const skewVariable = "NEMESIS_CLOCK_SKEW"

// skewCode is a file of Go's package time.
const skewCode = `package time

import "syscall"

var skew = func() (seconds int64) {
	text, _ := syscall.Getenv("` + skewVariable + `")
	sign := int64(1)
	for _, c := range text {
		if c == '-' {
			sign = -1
		} else {
			seconds = 10*seconds + int64(c-'0')
		}
	}
	return sign * seconds
}()
`

// skewable is the overlay with which the broker is built so that its clock is ahead by what its
// environment says. No clock of the machine can be set for a process alone: Go reads it without a
// system call, and the namespaces of Linux have one for the clocks that never jump alone.
func skewable(dir string) (overlay string, err error) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", err
	}
	source := filepath.Join(strings.TrimSpace(string(root)), "src", "time")
	text, err := os.ReadFile(filepath.Join(source, "time.go"))
	if err != nil {
		return "", err
	}
	const now = "\nfunc Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	changed := strings.Replace(string(text), now, now+"\tsec += skew\n", 1)
	if changed == string(text) {
		return "", errors.New("this version of Go reads the clock in another way")
	}
	replaced, err := json.Marshal(map[string]map[string]string{"Replace": {
		filepath.Join(source, "time.go"): filepath.Join(dir, "time.go"),
		filepath.Join(source, "skew.go"): filepath.Join(dir, "skew.go"),
	}})
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, errors.Join(err,
		os.WriteFile(filepath.Join(dir, "time.go"), []byte(changed), 0o600),
		os.WriteFile(filepath.Join(dir, "skew.go"), []byte(skewCode), 0o600),
		os.WriteFile(overlay, replaced, 0o600))
}
