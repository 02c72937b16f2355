// JSON in which every number stays as it was written: a payload may have numbers that JavaScript cannot hold.

// Such a number is shown and sent on as its text. A browser without JSON.rawJSON rounds it.
const exact = (key, value, context) => {
  if (typeof value !== "number" || context?.source === undefined || !JSON.rawJSON) return value;
  const isHeld = Number.isSafeInteger(value) || (Number.isFinite(value) && /[.eE]/.test(context.source));
  return isHeld ? value : JSON.rawJSON(context.source);
};

export const parse = text => JSON.parse(text, exact);
