// Who is signed in. The token is in this module's memory and nowhere else: a reload forgets it.

let token = null;
let claims = null;
let chosenTenant = null;
let whenSignedOut = () => {};

export class NotAToken extends Error {}

// What a token says of itself. Only the relay can tell whether it is true.
function read(text) {
  try {
    const part = text.split(".")[1].replaceAll("-", "+").replaceAll("_", "/");
    const found = JSON.parse(new TextDecoder().decode(Uint8Array.from(atob(part), one => one.charCodeAt(0))));
    if (typeof found.sub === "string" && typeof found.tenant === "string") return found;
  } catch { /* said below */ }
  throw new NotAToken("That is not a token of a relay: expected three parts with dots between them.");
}

export function signIn(text) {
  claims = read(text);
  chosenTenant = claims.tenant;
  token = text;
}

export function signOut(why = "") {
  token = claims = chosenTenant = null;
  whenSignedOut(why);
}

export const onSignOut = act => { whenSignedOut = act; };
export const isSignedIn = () => token !== null;
export const authorization = () => `Bearer ${token}`;
export const agent = () => claims.sub.includes("/") ? claims.sub : `${claims.tenant}/${claims.sub}`;
export const expiresAt = () => claims.exp * 1_000;
export const scopes = () => (claims.scope ?? "").split(" ").filter(Boolean);
export const may = (...any) => scopes().some(scope => scope === "operator" || any.includes(scope));
export const isAdmin = () => may("admin");
export const isOperator = () => may();
export const maySend = () => scopes().includes("send") && tenant() === claims.tenant;
export const mayManage = address => isAdmin() || (scopes().includes("receive") && address === agent());

export const tenant = () => chosenTenant;
export const chooseTenant = name => { chosenTenant = name || claims.tenant; };
export const tenantQuery = () => chosenTenant === claims.tenant ? {} : { tenant: chosenTenant };

// An agent's name in a path: bare in the token's own tenant.
export function inPath(address) {
  const [of, name] = address.includes("/") ? address.split("/", 2) : [chosenTenant, address];
  return encodeURIComponent(of === claims.tenant ? name : `${of}~${name}`);
}

export const bare = address => address.startsWith(`${chosenTenant}/`) ? address.slice(chosenTenant.length + 1) : address;
export const whole = name => name.includes("/") ? name : `${chosenTenant}/${name}`;
