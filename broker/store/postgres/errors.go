package postgres

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// codeFenced is the SQLSTATE of sandbox_fence.
const codeFenced = "SBL01"

var (
	// errTaken says that another process holds the lease.
	errTaken = errors.New("another process has taken over the state of this broker")
	// errExpired says that the lease could not be renewed in time.
	errExpired = errors.New("the database has not confirmed in time that this broker may use its state")
)

// retryAfter is when it is worth to ask again while the database is away.
const retryAfter = time.Second

// unavailable is the public form of a failure of the database. What the database says may
// have its address and is for the log alone.
func unavailable(err error) error {
	public := sdk.Errorf(sdk.CodeUnavailable, "the broker cannot use the database of its state: it is away, slow or refuses; the operator finds more in the broker's log")
	public.RetryAfter = retryAfter
	return fmt.Errorf("%w (%w)", public, err)
}

func takenError() error { return sdk.Errorf(sdk.CodeUnavailable, "%w", errTaken) }

// isFenced reports whether the lease is another's.
func isFenced(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == codeFenced
}

// isRolledBack reports whether the database gave up a transaction that met another one, which
// may be done anew.
func isRolledBack(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (strings.HasPrefix(refused.Code, "40") && refused.Code != "40003" || refused.Code == codeWaited) // of 40003 nobody knows
}

// codeWaited is the SQLSTATE of a lock that was not had in time.
const codeWaited = "55P03"

// isReadOnly reports whether the database takes no changes, as a replica does.
func isReadOnly(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.Code == "25006"
}

// settled reports whether a transaction that failed is over for certain: it was never sent, or
// the database has said that it has undone it. Of a lost connection nobody knows that, also where
// something between the broker and the database tells of it.
func settled(err error) bool {
	if pgconn.SafeToRetry(err) {
		return true
	}
	refused, ok := errors.AsType[*pgconn.PgError](err)
	return ok && refused.SeverityUnlocalized == "ERROR" && !strings.HasPrefix(refused.Code, "08")
}

// refusesRecord reports whether the database took the transaction and objected to what is in
// it, so that the updates of others in it are not to blame.
func refusesRecord(err error) bool {
	refused, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || len(refused.Code) != 5 {
		return false
	}
	class := refused.Code[:2]
	return class == "22" || class == "23" // wrong data, and what may not be twice
}
