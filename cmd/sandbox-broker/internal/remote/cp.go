package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/sandbox-broker/sandbox-broker/cmd/sandbox-broker/internal/archive"
	"github.com/sandbox-broker/sandbox-broker/sdk/client"
	"github.com/sandbox-broker/sandbox-broker/sdk/ondisk"
)

// Cp copies between this machine and an instance.
type Cp struct {
	From string `arg:"" help:"A file or directory here, INSTANCE:PATH, or - for standard input." complete:"places"`
	To   string `arg:"" help:"A file or directory here, INSTANCE:PATH, or - for standard output." complete:"places"`
	Tar  bool   `help:"What goes through - is a tar stream, of a directory or to unpack in one."`
	Connection
}

// Help is shown below the usage.
func (*Cp) Help() string {
	return `A path in an instance that is relative begins at /workspace. A directory is copied with
all that is in it. What is copied into a directory that exists keeps its name; with /.
behind the source only what is in it is copied. Directories that are missing above
a file in an instance are made. Links that lead out of what is copied stay behind. A file
appears whole or not at all.

A name with a colon in it is a file here if it begins with / or ./ .

Examples:
  sandbox-broker cp data.csv build:input/
  sandbox-broker cp src build:/workspace
  sandbox-broker cp build:results/report.html .
  sandbox-broker cp build:results - | tar -t
  echo hello | sandbox-broker cp - build:greeting.txt
  tar -c src | sandbox-broker cp --tar - build:/workspace`
}

// place is one end of a copy.
type place struct {
	instance string // as a person names it; empty for this machine
	path     string // "-" here is standard input or output
}

var fullID = regexp.MustCompile(`^([a-z0-9][a-z0-9_-]*:[A-Za-z0-9_.-]+:[a-z0-9]{20}):(.*)$`)

// placeOf tells INSTANCE:PATH from a path here.
func placeOf(word string) place {
	if strings.HasPrefix(word, "/") || strings.HasPrefix(word, "./") || strings.HasPrefix(word, "../") {
		return place{path: word}
	}
	if full := fullID.FindStringSubmatch(word); full != nil {
		return place{instance: full[1], path: full[2]}
	}
	if name, there, found := strings.Cut(word, ":"); found && name != "" && !strings.Contains(name, "/") {
		return place{instance: name, path: there}
	}
	return place{path: word}
}

// Run copies one way or the other.
func (c *Cp) Run(ctx context.Context, console *Console) error {
	return c.run(ctx, console, instanceNamed)
}

// run copies; named finds what files are of by what a person calls it.
func (c *Cp) run(ctx context.Context, console *Console, named func(ctx context.Context, broker *client.Client, name string) (string, error)) error {
	from, to := placeOf(c.From), placeOf(c.To)
	switch {
	case from.instance == "" && to.instance == "":
		return usageErrorf("one of the two must be in an instance: write INSTANCE:PATH")
	case from.instance != "" && to.instance != "":
		return usageErrorf("both are in instances: copy by way of this machine, as in cp A:FILE - | cp - B:FILE")
	case c.Tar && from.path != "-" && to.path != "-":
		return usageErrorf("--tar is for - as one of the two")
	case from.instance == "" && from.path == "-" && c.TokenFile == "-":
		return usageErrorf("standard input is one thing: both the source and --token-file are -")
	}
	broker, err := c.Client(console)
	if err != nil {
		return err
	}
	ctx, leave := untilSignal(ctx)
	defer leave()
	t := &transfer{broker: broker, console: console, tar: c.Tar}
	stop := func() {}
	if to.path != "-" || console.screen == nil { // which shows the content
		stop = startProgress(console, func() string { return size(t.bytes.Load()) + " copied" })
	}
	if to.instance != "" {
		if t.instance, err = named(ctx, broker, to.instance); err == nil {
			err = t.upload(ctx, from.path, to.path)
		}
	} else {
		if t.instance, err = named(ctx, broker, from.instance); err == nil {
			err = t.download(ctx, from.path, to.path)
		}
	}
	stop()
	return err
}

// transfer is one copy.
type transfer struct {
	broker   *client.Client
	console  *Console
	instance string
	tar      bool
	bytes    atomic.Int64
}

// counting counts what is read, for the progress.
func (t *transfer) counting(r io.Reader) io.Reader {
	return io.TeeReader(r, writerFunc(func(p []byte) (int, error) {
		t.bytes.Add(int64(len(p)))
		return len(p), nil
	}))
}

type writerFunc func(p []byte) (int, error)

// Write implements io.Writer.
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// skipped tells of what stays behind.
func (t *transfer) skipped(name, why string) {
	fmt.Fprintf(t.console.Err, "sandbox-broker: %q stays behind: %s\n", name, why)
}

// upload copies a file, a directory or standard input to a path in the instance.
func (t *transfer) upload(ctx context.Context, from, to string) error {
	if from == "-" && t.tar {
		_, err := t.broker.WriteArchive(ctx, t.instance, directoryQuery(to), t.counting(t.console.In))
		return err
	}
	if from == "-" {
		if to == "" || strings.HasSuffix(to, "/") {
			return usageErrorf("name the file that standard input becomes, not a directory")
		}
		return t.write(ctx, to, 0, t.console.In)
	}
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	inside := filepath.Base(from) == "." && from != "." || strings.HasSuffix(from, "/.")
	target, err := t.targetThere(ctx, to, localName(from), inside)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return t.uploadDirectory(ctx, from, target)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is no file and no directory", from)
	}
	file, err := os.Open(from)
	if err != nil {
		return err
	}
	defer file.Close()
	return t.write(ctx, target, info.Mode().Perm(), file)
}

// localName is what a file or directory here is called, also where it was named by ".".
func localName(name string) string {
	if absolute, err := filepath.Abs(name); err == nil {
		return filepath.Base(absolute)
	}
	return filepath.Base(name)
}

// targetThere is the path in the instance that something called name gets: below to, if
// that is a directory.
func (t *transfer) targetThere(ctx context.Context, to, name string, inside bool) (string, error) {
	if inside {
		return to, nil
	}
	if to == "" || strings.HasSuffix(to, "/") {
		return path.Join(to, name), nil
	}
	found, err := t.broker.StatFile(ctx, t.instance, to)
	switch {
	case isGone(err):
		return to, nil
	case err != nil:
		return "", err
	case found.Type == "directory":
		return path.Join(to, name), nil
	default:
		return to, nil
	}
}

func (t *transfer) write(ctx context.Context, to string, mode fs.FileMode, content io.Reader) error {
	query := url.Values{"path": {to}, "parents": {"true"}}
	if mode != 0 {
		query.Set("mode", fmt.Sprintf("%04o", mode))
	}
	_, err := t.broker.WriteFile(ctx, t.instance, query, t.counting(content))
	return err
}

func (t *transfer) uploadDirectory(ctx context.Context, from, to string) error {
	if to != "" {
		if _, err := t.broker.MakeDirectory(ctx, t.instance, client.MakeDirectoryRequest{Path: to}); err != nil {
			return err
		}
	}
	packed, w := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = w.CloseWithError(archive.Pack(ctx, w, from, func(name string) {
			t.skipped(name, "it is no file, directory or symbolic link")
		}))
	}()
	_, err := t.broker.WriteArchive(ctx, t.instance, directoryQuery(to), t.counting(packed))
	_ = packed.Close() // ends the packing that nobody reads
	<-ended
	return err
}

func directoryQuery(directory string) url.Values {
	if directory == "" {
		return nil
	}
	return url.Values{"directory": {directory}}
}

// download copies a file or directory of the instance here, or to standard output.
func (t *transfer) download(ctx context.Context, from, to string) error {
	inside := from == "" || from == "." || strings.HasSuffix(from, "/.")
	if from == "" {
		from = "."
	}
	found, err := t.broker.StatFile(ctx, t.instance, from)
	if err != nil {
		return err
	}
	directory := found.Type == "directory"
	if !directory && found.Type != "file" {
		return fmt.Errorf("%s is no file and no directory", found.Path)
	}
	if to == "-" {
		return t.toOutput(ctx, found.Path, directory || t.tar)
	}
	target := to
	if info, err := os.Stat(to); err == nil && info.IsDir() && !inside || err != nil && strings.HasSuffix(to, "/") {
		target = filepath.Join(to, path.Base(found.Path))
		if info, err := os.Lstat(target); err == nil && info.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link, which may lead anywhere: remove it, or name where it leads", target)
		}
	}
	if !directory {
		return t.downloadFile(ctx, found, target)
	}
	stream, err := t.broker.ReadArchive(ctx, t.instance, directoryQuery(found.Path))
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = archive.Unpack(t.counting(stream), target, t.skipped)
	return err
}

// archiveQuery asks for a file or directory by its name in the one above it. Nobody may look
// above the topmost ones.
func archiveQuery(of string) url.Values {
	if path.Dir(of) == "/" {
		return directoryQuery(of)
	}
	return url.Values{"directory": {path.Dir(of)}, "paths": {path.Base(of)}}
}

func (t *transfer) toOutput(ctx context.Context, from string, asArchive bool) error {
	var stream io.ReadCloser
	var err error
	if asArchive {
		stream, err = t.broker.ReadArchive(ctx, t.instance, archiveQuery(from))
	} else {
		stream, err = t.broker.ReadFile(ctx, t.instance, from)
	}
	if err != nil {
		return err
	}
	defer stream.Close()
	_, err = io.Copy(t.console.Out, t.counting(stream))
	return err
}

func (t *transfer) downloadFile(ctx context.Context, found client.File, to string) (err error) {
	stream, err := t.broker.ReadFile(ctx, t.instance, found.Path)
	if err != nil {
		return err
	}
	defer stream.Close()
	mode := fs.FileMode(0o644)
	if bits, err := strconv.ParseUint(found.Mode, 8, 32); err == nil {
		mode = fs.FileMode(bits) & fs.ModePerm
	}
	draft, err := ondisk.Create(to, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, draft.Cleanup()) }()
	if _, err := io.Copy(draft, t.counting(stream)); err != nil {
		return err
	}
	return draft.Commit()
}
