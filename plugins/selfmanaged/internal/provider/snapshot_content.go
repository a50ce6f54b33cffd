package provider

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/stdio"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/runsc"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/internal/snapshotfile"
)

// errDiskFull is what the kernel says then.
const errDiskFull = unix.ENOSPC

// maxEnvironment bounds the variables of an instance as they are kept, which the broker
// bounds to less.
const maxEnvironment = 16 << 20

// contentOf writes what is kept: the token that the guest expects, and after their lengths
// what the sandbox was started with, the variables of the instance and each file.
func contentOf(ctx context.Context, k kept) func(io.Writer) error {
	return func(to io.Writer) error {
		env := make(map[string][]byte, len(k.env)) // a value need not be UTF-8
		for name, value := range k.env {
			env[name] = []byte(value)
		}
		text, err := json.Marshal(env)
		if err != nil {
			return err
		}
		if _, err := to.Write(k.Token()); err != nil {
			return err
		}
		for _, text := range [][]byte{[]byte(k.Like()), text} {
			if _, err := to.Write(append(binary.BigEndian.AppendUint64(nil, uint64(len(text))), text...)); err != nil {
				return err
			}
		}
		for _, name := range runsc.CheckpointFiles {
			if err := writeFile(ctx, to, k.Checkpoint, name); err != nil {
				return err
			}
		}
		return nil
	}
}

func writeFile(ctx context.Context, to io.Writer, c *runsc.Checkpoint, name string) error {
	f, err := c.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := binary.Write(to, binary.BigEndian, info.Size()); err != nil {
		return err
	}
	_, err = io.CopyN(to, untilDone{ctx, f}, info.Size())
	return err
}

// checkpointFrom makes what contentOf has written. The caller owes a Remove.
func checkpointFrom(ctx context.Context, runtime checkpointer, from io.Reader) (_ kept, err error) {
	from = untilDone{ctx, from}
	token := make([]byte, stdio.TokenBytes)
	if _, err := io.ReadFull(from, token); err != nil {
		return kept{}, whole(err)
	}
	like, err := readText(from)
	if err != nil {
		return kept{}, whole(err)
	}
	env, err := readEnvironment(from)
	if err != nil {
		return kept{}, whole(err)
	}
	c, err := runtime.NewCheckpoint(newID(), token, string(like))
	if err != nil {
		return kept{}, err
	}
	for _, name := range runsc.CheckpointFiles {
		if err = readFile(from, c, name); err != nil {
			return kept{}, errors.Join(whole(err), c.Remove())
		}
	}
	// Only the end says that nothing was cut off.
	switch n, err := from.Read(make([]byte, 1)); {
	case n > 0:
		return kept{}, errors.Join(snapshotfile.ErrSealed, c.Remove())
	case !errors.Is(err, io.EOF):
		return kept{}, errors.Join(err, c.Remove())
	}
	return kept{Checkpoint: c, env: env}, nil
}

func readText(from io.Reader) ([]byte, error) {
	var length uint64
	if err := binary.Read(from, binary.BigEndian, &length); err != nil {
		return nil, err
	}
	if length > maxEnvironment {
		return nil, snapshotfile.ErrSealed
	}
	text := make([]byte, length)
	_, err := io.ReadFull(from, text)
	return text, err
}

func readEnvironment(from io.Reader) (map[string]string, error) {
	text, err := readText(from)
	if err != nil {
		return nil, err
	}
	var raw map[string][]byte
	if err := json.Unmarshal(text, &raw); err != nil {
		return nil, snapshotfile.ErrSealed
	}
	env := make(map[string]string, len(raw))
	for name, value := range raw {
		env[name] = string(value)
	}
	return env, nil
}

// whole says what it means that the content ends early.
func whole(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return snapshotfile.ErrSealed
	}
	return err
}

func readFile(from io.Reader, c *runsc.Checkpoint, name string) error {
	var size int64
	if err := binary.Read(from, binary.BigEndian, &size); err != nil {
		return err
	}
	if size < 0 {
		return snapshotfile.ErrSealed
	}
	f, err := c.Create(name)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, from, size)
	if errors.Is(err, errDiskFull) {
		err = noRoom()
	}
	return errors.Join(err, closing(f))
}

func closing(f *os.File) error {
	if err := f.Close(); err != nil {
		return fmt.Errorf("write a checkpoint: %w", err)
	}
	return nil
}

// untilDone ends reading when nobody wants it any more.
type untilDone struct {
	ctx  context.Context
	from io.Reader
}

// Read implements io.Reader.
func (u untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.from.Read(p)
}
