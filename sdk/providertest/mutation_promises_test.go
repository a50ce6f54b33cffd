package providertest_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"gotest.tools/v3/assert"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// Each breaks a promise that stands in the pages for agents.
func TestWrongFilesOfAgentsAreFound(t *testing.T) {
	reading := func(change func(c *capable, req *sdk.ReadFileRequest) error) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.readFile = func(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
				if err := change(c, &req); err != nil {
					return sdk.FileInfo{}, nil, err
				}
				return c.Provider.ReadFile(ctx, req)
			}
		})
	}
	notFound := sdk.Errorf(sdk.CodeNotFound, "no such file")
	checkMutations(t, map[string]mutation{
		"paths that are walked": {among: "files/a path", fails: []string{" is shortened as text before anything is looked at"}, wraps: reading(func(_ *capable, req *sdk.ReadFileRequest) error {
			if strings.Contains(req.Path, "absent/..") {
				return notFound
			}
			return nil
		})},
		"no links": {among: "files/a link", fails: []string{" that stays in its place is followed"}, wraps: reading(func(c *capable, req *sdk.ReadFileRequest) error {
			info, err := c.Provider.StatFile(context.Background(), req.InstanceID, path.Dir(req.Path))
			if err == nil && info.Type == sdk.FileSymlink {
				return notFound
			}
			return nil
		})},
		"writes through links": {among: "files/a link", fails: []string{" where a file is to be written is a conflict"}, wraps: changing(func(c *capable) {
			c.writeFile = func(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
				if info, err := c.Provider.StatFile(ctx, req.InstanceID, req.Path); err == nil && info.Type == sdk.FileSymlink {
					req.Path = info.Target
				}
				return c.Provider.WriteFile(ctx, req, content)
			}
		})},
		"one spelling": {among: "files/two", fails: []string{" spellings of a letter are two names"}, wraps: changing(func(c *capable) {
			c.writeFile = func(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
				req.Path = strings.ReplaceAll(req.Path, "e\u0301", "\u00e9")
				return c.Provider.WriteFile(ctx, req, content)
			}
			c.readFile = func(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
				req.Path = strings.ReplaceAll(req.Path, "e\u0301", "\u00e9")
				return c.Provider.ReadFile(ctx, req)
			}
		})},
		"a copy of files": {among: "files/code and", fails: []string{" calls see one file"}, wraps: changing(func(c *capable) {
			var mu sync.Mutex
			written := map[string][]byte{}
			c.writeFile = func(ctx context.Context, req sdk.WriteFileRequest, content io.Reader) (sdk.FileInfo, error) {
				all, err := io.ReadAll(content)
				mu.Lock()
				written[req.InstanceID+req.Path] = all
				mu.Unlock()
				info, writeErr := c.Provider.WriteFile(ctx, req, bytes.NewReader(all))
				return info, errors.Join(err, writeErr)
			}
			c.readFile = func(ctx context.Context, req sdk.ReadFileRequest) (sdk.FileInfo, io.ReadCloser, error) {
				info, content, err := c.Provider.ReadFile(ctx, req)
				mu.Lock()
				defer mu.Unlock()
				if all, ok := written[req.InstanceID+req.Path]; ok && err == nil {
					return info, io.NopCloser(bytes.NewReader(all)), content.Close()
				}
				return info, content, err
			}
		})},
		"replacements that count too much": {among: "file_search/a text that", fails: []string{" spans lines is replaced, and a file without it is not touched"}, wraps: changing(func(c *capable) {
			c.replace = func(list []sdk.FileReplacement) []sdk.FileReplacement {
				for i := range list {
					list[i].Count = max(list[i].Count, 1)
				}
				return list
			}
		})},
		"modes of its own": {among: "archives/unpacked", fails: []string{" files have their modes and times"}, wraps: changing(func(c *capable) {
			c.unpack = func(ctx context.Context, id, directory string, content io.Reader) (sdk.ArchiveSummary, error) {
				packed, err := repacked(content, func(h *tar.Header) { h.Mode = 0o644 })
				if err != nil {
					return sdk.ArchiveSummary{}, err
				}
				return c.Provider.WriteArchive(ctx, id, directory, packed)
			}
		})},
		"times of now": {among: "archives/unpacked", fails: []string{" files have their modes and times"}, wraps: changing(func(c *capable) {
			c.unpack = func(ctx context.Context, id, directory string, content io.Reader) (sdk.ArchiveSummary, error) {
				packed, err := repacked(content, func(h *tar.Header) { h.ModTime = time.Now() })
				if err != nil {
					return sdk.ArchiveSummary{}, err
				}
				return c.Provider.WriteArchive(ctx, id, directory, packed)
			}
		})},
		"pipes in archives": {among: "archives/pipes", fails: []string{" are left out of an archive"}, wraps: changing(func(c *capable) {
			c.pack = func(ctx context.Context, req sdk.ReadArchiveRequest) (io.ReadCloser, error) {
				archive, err := c.Provider.ReadArchive(ctx, req)
				if err != nil {
					return nil, err
				}
				defer archive.Close()
				packed, err := repacked(archive, nil, tar.Header{Name: "pipe", Typeflag: tar.TypeFifo})
				return io.NopCloser(packed), err
			}
		})},
	})
}

// repacked is an archive with its headers changed, and more of them.
func repacked(archive io.Reader, change func(*tar.Header), more ...tar.Header) (*bytes.Buffer, error) {
	var packed bytes.Buffer
	w := tar.NewWriter(&packed)
	for r := tar.NewReader(archive); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if change != nil {
			change(header)
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := io.Copy(w, r); err != nil {
			return nil, err
		}
	}
	for _, header := range more {
		if err := w.WriteHeader(&header); err != nil {
			return nil, err
		}
	}
	return &packed, w.Close()
}

var sleepingWord = regexp.MustCompile(`86400\.\d+`)

// A kill of a provider in this process is the end of its connection: what it cannot
// take with it is what it has let go of before.
func TestCodeThatSurvivesAKillIsFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		detaches bool
		want     providertest.Status
	}{
		"a provider that ends its code":        {false, providertest.Passed},
		"a provider that lets its code go off": {true, providertest.Failed},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			factory := func(logger hclog.Logger) sdk.Provider {
				b := &broken{Provider: local.New(logger).(*local.Provider)}
				t.Cleanup(func() { assert.Check(t, b.Provider.Close(context.Background())) }) // whom a kill spares
				b.describe = func(d sdk.Description) sdk.Description {
					d.Ephemeral = true
					return d
				}
				if c.detaches {
					b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
						detached := exec.Command("sleep", sleepingWord.FindString(req.Code))
						if err := detached.Start(); err != nil {
							return sdk.ExecuteResult{}, err
						}
						go func() { _ = detached.Wait() }()
						return b.Provider.Execute(ctx, req, out)
					}
				}
				return b
			}
			opener := func(ctx context.Context) (*providertest.Plugin, error) {
				plugin, err := providertest.InProcess(factory)(ctx)
				if err != nil {
					return nil, err
				}
				plugin.Kill = func() { _ = plugin.Conn.(io.Closer).Close() }
				return plugin, nil
			}
			options := append(newWorld(t).options(), providertest.WithOnly(regexp.MustCompile("^process/code ends with a process that is killed")), providertest.WithPatience(0.3))
			report := providertest.Verify(t.Context(), opener, options...)
			i := slices.IndexFunc(report.Cases, func(r providertest.Result) bool { return r.Name == "code ends with a process that is killed" })
			assert.Equal(t, report.Cases[i].Status, c.want, report.Cases[i].Reason)
		})
	}
}

func TestARefusedTerminalIsAPromiseKept(t *testing.T) {
	t.Parallel()
	terminals := func(start func(c *capable, ctx context.Context, req sdk.CommandRequest) (sdk.Command, error)) providertest.Result {
		factory := func(logger hclog.Logger) sdk.Provider {
			return changing(func(c *capable) {
				c.start = func(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) { return start(c, ctx, req) }
			})(local.New(logger).(*local.Provider))
		}
		options := append(newWorld(t).options(), providertest.WithOnly(regexp.MustCompile("^commands/a terminal")))
		report := providertest.Verify(t.Context(), providertest.InProcess(factory), options...)
		i := slices.IndexFunc(report.Cases, func(r providertest.Result) bool { return strings.HasPrefix(r.Name, "a terminal") })
		return report.Cases[i]
	}
	refused := terminals(func(c *capable, ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
		return c.Provider.StartCommand(ctx, req)
	})
	assert.Equal(t, refused.Status, providertest.Passed, refused.Reason)
	// What is refused must not run all the same.
	started := terminals(func(c *capable, ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
		req.Terminal = nil
		_, err := c.Provider.StartCommand(ctx, req)
		return sdk.Command{}, errors.Join(err, sdk.NotSupported("local", sdk.CapabilityCommands))
	})
	assert.Equal(t, started.Status, providertest.Failed)
}
