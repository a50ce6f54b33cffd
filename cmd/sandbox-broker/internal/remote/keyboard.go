package remote

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// keyboard reads what is typed at a terminal, key by key, and can be told to stop.
type keyboard struct {
	file       *os.File
	before     *term.State
	wake, woke *os.File
}

// openKeyboard puts the terminal into raw mode: keys come as they are typed, Ctrl-C too.
func openKeyboard(file *os.File) (*keyboard, error) {
	woke, wake, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	before, err := term.MakeRaw(int(file.Fd()))
	if err != nil {
		return nil, errors.Join(err, wake.Close(), woke.Close())
	}
	return &keyboard{file: file, before: before, wake: wake, woke: woke}, nil
}

// Read implements io.Reader. It returns io.EOF once the keyboard was stopped.
func (k *keyboard) Read(p []byte) (int, error) {
	for {
		ready := []unix.PollFd{{Fd: int32(k.file.Fd()), Events: unix.POLLIN}, {Fd: int32(k.woke.Fd()), Events: unix.POLLIN}}
		_, err := unix.Poll(ready, -1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case ready[1].Revents != 0:
			return 0, io.EOF
		default:
			return k.file.Read(p)
		}
	}
}

// stop ends a Read that waits, and those that follow.
func (k *keyboard) stop() { _ = k.wake.Close() }

// close puts the terminal back as it was. Nobody may read any more.
func (k *keyboard) close() error {
	return errors.Join(term.Restore(int(k.file.Fd()), k.before), k.woke.Close())
}

// typedSecret asks a person for a secret, which does not appear on the screen.
func typedSecret(console *Console, prompt string) (string, error) {
	fmt.Fprint(console.Err, prompt)
	defer fmt.Fprintln(console.Err)
	typed, err := term.ReadPassword(int(console.keyboard.Fd()))
	if err != nil {
		return "", err
	}
	return readToken(bytes.NewReader(typed), "-")
}
