package statedir

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	// backupName is the socket in the state directory at which a running broker gives
	// out its state.
	backupName = "backup.sock"
	// backupTimeout bounds one backup: the state file grows as long as it is read.
	backupTimeout = time.Minute
)

// BackupServer gives what is durable to whoever connects to a socket in the state directory,
// which nobody else can reach: one after the other.
type BackupServer struct {
	dir      string
	logger   hclog.Logger
	snapshot func(io.Writer) error

	mu       sync.Mutex
	listener *net.UnixListener
	closed   bool
	serving  sync.WaitGroup
	// one is held by the backup that is being made.
	one sync.Mutex
}

// ServeBackups listens; Close ends it.
func ServeBackups(dir string, snapshot func(io.Writer) error, logger hclog.Logger) (*BackupServer, error) {
	b := &BackupServer{dir: dir, snapshot: snapshot, logger: logger}
	if err := b.Recreate(); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	return b, nil
}

// Recreate listens on a new socket if the one that there was is not there any more.
func (b *BackupServer) Recreate() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	path := filepath.Join(b.dir, backupName)
	if b.closed || b.listener != nil && isSocket(path) {
		return nil
	}
	if b.listener != nil {
		_ = b.listener.Close()
		b.listener = nil
	}
	if err := os.RemoveAll(path); err != nil {
		return err
	}
	err := inDir(b.dir, func(short string) (err error) {
		b.listener, err = net.ListenUnix("unix", &net.UnixAddr{Name: short, Net: "unix"})
		return err
	})
	if err != nil {
		return err
	}
	b.listener.SetUnlinkOnClose(false) // the name is one that ends with this call
	listener := b.listener
	b.serving.Go(func() { b.serve(listener) })
	return os.Chmod(path, 0o600)
}

func isSocket(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().Type() == os.ModeSocket
}

// inDir calls use with a short name for the socket: paths of sockets are limited.
func inDir(dir string, use func(short string) error) error {
	handle, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer handle.Close()
	return use(fmt.Sprintf("/proc/self/fd/%d/%s", handle.Fd(), backupName))
}

func (b *BackupServer) serve(listener *net.UnixListener) {
	for {
		conn, err := listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // no descriptor is left, perhaps
			time.Sleep(acceptPause)
			continue
		}
		b.serving.Go(func() { b.give(conn) })
	}
}

// acceptPause is how long to wait after a connection that could not be accepted.
const acceptPause = 100 * time.Millisecond

func (b *BackupServer) give(conn *net.UnixConn) {
	defer conn.Close()
	if err := isOwn(conn); err != nil {
		b.logger.Warn("somebody else asked for a backup", "error", err)
		return
	}
	b.one.Lock()
	defer b.one.Unlock()
	if err := conn.SetDeadline(time.Now().Add(backupTimeout)); err != nil {
		return
	}
	if err := b.snapshot(conn); err != nil {
		b.logger.Warn("a backup of the state was not made", "error", err)
	}
}

// isOwn refuses processes of other users, but for root's.
func isOwn(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var peer *unix.Ucred
	var peerErr error
	if err := raw.Control(func(fd uintptr) {
		peer, peerErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if peerErr != nil {
		return peerErr
	}
	if own := os.Geteuid(); int(peer.Uid) != own && peer.Uid != 0 {
		return fmt.Errorf("the user %d is not %d", peer.Uid, own)
	}
	return nil
}

// Close ends all of it and removes the socket.
func (b *BackupServer) Close() error {
	b.mu.Lock()
	b.closed = true
	var err error
	if b.listener != nil {
		err = b.listener.Close()
	}
	b.mu.Unlock()
	b.serving.Wait()
	return errors.Join(err, os.RemoveAll(filepath.Join(b.dir, backupName)))
}

// requestBackup writes the state of the broker that runs on a directory.
func requestBackup(ctx context.Context, dir string, to io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, backupTimeout)
	defer cancel()
	var conn net.Conn
	err := inDir(dir, func(short string) (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, "unix", short)
		return err
	})
	if err != nil {
		return fmt.Errorf("ask the broker that runs for its state: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	_, err = io.Copy(to, conn)
	return err
}
