package provider

import (
	"archive/tar"
	"cmp"
	"context"
	"errors"
	"io"
	"path"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestclient"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/guestpackages"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/imagestore"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/packages"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// installTimeout bounds the installation of a template's packages, installOutput what
	// is kept of what it prints.
	installTimeout = 15 * time.Minute
	installOutput  = 64 << 10
	// Packages are unpacked in memory while they are installed.
	installMemoryMB    = 4096
	installWorkspaceMB = 2048
)

// installing is a sandbox in which nothing but packages are installed: those of a template, or
// of a layer.
type installing struct {
	*sandbox
	lock sync.Mutex
	// tenant and instance are for whom that is; empty for a template.
	tenant, instance string
}

var _ guestpackages.Instance = (*installing)(nil)

// Guest implements guestpackages.Instance.
func (i *installing) Guest() *guestclient.Client { return i.guest }

// Installing implements guestpackages.Instance.
func (i *installing) Installing() *sync.Mutex { return &i.lock }

// Programs implements guestpackages.Instance.
func (i *installing) Programs() (guestpackages.Programs, bool) { return i.programs() }

// Owner implements guestpackages.Instance.
func (i *installing) Owner() (tenant, instanceID string) { return i.tenant, cmp.Or(i.instance, i.ID) }

// WithoutResult implements guestpackages.Instance.
func (i *installing) WithoutResult(_ context.Context, _ time.Duration, _ time.Time, err error) (sdk.ExecuteResult, error) {
	return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeUnavailable, "the sandbox in which packages were installed has ended: %w", err)
}

// packageLayer implements imagestore.Installer: packages are installed in a sandbox of the
// image without them, and what is there then is the layer.
func (p *Provider) packageLayer(ctx context.Context, without *imagestore.Image, wanted []string) (_ io.ReadCloser, err error) {
	t, err := p.templates.use(without.Image, p.sandboxes.limits)
	if err != nil {
		return nil, err
	}
	t.limits.MemoryMB = max(t.limits.MemoryMB, installMemoryMB)
	t.limits.WorkspaceMB = max(t.limits.WorkspaceMB, installWorkspaceMB)
	s, err := p.sandboxes.startTemplate(ctx, t, shared{})
	if err != nil {
		return nil, sdk.Errorf(sdk.CodeInvalidRequest, "it was built, but no sandbox of it starts: %s", reasonOf(err))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Destroy(context.WithoutCancel(ctx)))
		}
	}()
	i := &installing{sandbox: s}
	dir, err := i.packageDir(ctx)
	if err != nil {
		return nil, err
	}
	said := &lastOutput{}
	result, err := p.packages.Install(ctx, i, sdk.InstallPackagesRequest{
		Language: sdk.Python, Requirements: wanted, Timeout: installTimeout, OutputLimit: installOutput,
	}, said)
	switch {
	case err != nil:
		return nil, err
	case result.Status != sdk.StatusSucceeded:
		return nil, sdk.FieldErrorf(sdk.CodeInvalidRequest, "packages", "could not be installed: %s", said.last())
	}
	archive, err := s.guest.Instance().ReadArchive(ctx, sdk.ReadArchiveRequest{Directory: packages.PythonDir})
	if err != nil {
		return nil, err
	}
	return placed(archive, dir, func() error { return s.Destroy(context.WithoutCancel(ctx)) }), nil
}

// packageDir is where the Python of the image looks for packages.
func (i *installing) packageDir(ctx context.Context) (string, error) {
	said := &lastOutput{}
	_, err := i.guest.Execute(ctx, sdk.ExecuteRequest{
		Language: sdk.Python, Code: "import sysconfig; print(sysconfig.get_path('purelib'))", Timeout: readyTimeout, OutputLimit: installOutput,
	}, i.environment(nil), said)
	if err != nil {
		return "", err
	}
	dir := strings.TrimSpace(string(said.text))
	if !strings.HasPrefix(dir, "/usr/") && !strings.HasPrefix(dir, "/opt/") || path.Clean(dir) != dir {
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, "packages", "cannot be installed: the Python of the image has them at %.100q", dir)
	}
	return strings.TrimPrefix(dir, "/"), nil
}

// placedArchive is an archive whose reader is done with what it came from when closed.
type placedArchive struct {
	*io.PipeReader
	done  <-chan struct{}
	close func() error
}

// Close ends the reading, and then what the archive came from.
func (a placedArchive) Close() error {
	err := a.PipeReader.Close()
	<-a.done
	return errors.Join(err, a.close())
}

// placed moves what is in an archive to a directory, and programs to where they are found.
func placed(archive io.ReadCloser, dir string, end func() error) io.ReadCloser {
	reader, writer := io.Pipe()
	done := make(chan struct{})
	go func() { // ends with the archive, or when the reader is closed
		defer close(done)
		writer.CloseWithError(place(archive, dir, writer))
		_ = archive.Close()
	}()
	return placedArchive{reader, done, end}
}

func place(archive io.Reader, dir string, to io.Writer) error {
	from, into := tar.NewReader(archive), tar.NewWriter(to)
	for {
		header, err := from.Next()
		if errors.Is(err, io.EOF) {
			return into.Close()
		}
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(header.Name, "./")
		if program, ok := strings.CutPrefix(name, "bin/"); ok {
			header.Name = "usr/local/bin/" + program
		} else {
			header.Name = dir + "/" + name
		}
		header.Format, header.PAXRecords = tar.FormatPAX, nil
		if err := into.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.Copy(into, from); err != nil {
			return err
		}
	}
}
